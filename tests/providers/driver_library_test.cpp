// SPDX-License-Identifier: BSD-3-Clause
#include "common/driver_library.hpp"

#include <cerrno>

#include <gmock/gmock.h>

namespace rdmabuf::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OrRefusal<DriverLibrary> open(std::initializer_list<const char*> names) {
    return DriverLibrary::open({names.begin(), names.size()}, "Acme driver", "buy an Acme");
}

TEST(DriverLibrary, TellsEveryNameItTriedAndWhatTheLoaderSaid) {
    const auto opened = open({"libacme-first.so.1", "libacme-second.so"});
    const auto* const refusal = std::get_if<Refusal>(&opened);
    ASSERT_NE(refusal, nullptr);
    EXPECT_EQ(refusal->error, ENOENT);
    EXPECT_STREQ(refusal->function, "dlopen");
    EXPECT_THAT(refusal->why.reason,
                AllOf(HasSubstr("the Acme driver cannot be loaded: libacme-first.so.1: "),
                      HasSubstr("; libacme-second.so: "), HasSubstr("No such file")));
    EXPECT_EQ(refusal->why.remedy, "buy an Acme");
}

TEST(DriverLibrary, TellsOfOneThatIsNoLibrary) {
    const auto opened = open({"/dev/null"});
    const auto* const refusal = std::get_if<Refusal>(&opened);
    ASSERT_NE(refusal, nullptr);
    EXPECT_THAT(refusal->why.reason, HasSubstr("/dev/null: file too short"));
}

TEST(DriverLibrary, LoadsTheFirstThatThereIs) {
    const auto opened = open({"libacme.so.1", "libcuda.so.1", LACKING_DRIVER});
    const auto* const library = std::get_if<DriverLibrary>(&opened);
    ASSERT_NE(library, nullptr);
    EXPECT_EQ(library->name(), "libcuda.so.1");
    EXPECT_NE(library->symbol("cuMemGetHandleForAddressRange"), nullptr);
    EXPECT_EQ(library->symbol("acme"), nullptr);
}

TEST(SymbolLookup, NamesAllThatIsMissingAndWhoHasIt) {
    const auto opened = open({LACKING_DRIVER});
    SymbolLookup lookup(std::get<DriverLibrary>(opened));
    int (*present)(unsigned) = nullptr;
    int (*missing)(unsigned) = nullptr;
    int (*also_missing)(unsigned) = nullptr;
    int (*unimportant)(unsigned) = [](unsigned) { return 1; };
    lookup.required("cuInit", present, "Acme 1");
    EXPECT_FALSE(lookup.refusal("update"));
    ASSERT_NE(present, nullptr);
    EXPECT_EQ(present(0), 0);
    lookup.optional("acme_extra", unimportant);
    EXPECT_EQ(unimportant, nullptr);
    EXPECT_FALSE(lookup.refusal("update"));
    lookup.required("acme_export", missing, "Acme 2");
    lookup.required("acme_flush", also_missing, "Acme 3");
    const auto refusal = lookup.refusal("update");
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->error, ENOSYS);
    EXPECT_STREQ(refusal->function, "dlsym");
    EXPECT_THAT(refusal->why.reason,
                HasSubstr("is too old: it lacks acme_export (there since Acme 2), acme_flush "
                          "(there since Acme 3)"));
    EXPECT_EQ(refusal->why.remedy, "update");
}

} // namespace
} // namespace rdmabuf::detail
