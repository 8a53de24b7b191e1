// SPDX-License-Identifier: BSD-3-Clause
#include "common/driver_library.hpp"

#include <array>
#include <cerrno>
#include <latch>
#include <thread>

#include <gmock/gmock.h>

#include "child_process.hpp"
#include "common/process_driver.hpp"
#include "waiting.hpp"

namespace rdmabuf::detail {
namespace {

using ::testing::HasSubstr;

Result<DriverLibrary> open(std::initializer_list<const char*> names) {
    return DriverLibrary::open({names.begin(), names.size()}, "Acme driver", "buy an Acme");
}

TEST(DriverLibrary, TellsOfOneThatIsNoLibrary) {
    const auto opened = open({"/dev/null"});
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.reason(), HasSubstr("/dev/null: file too short"));
}

TEST(DriverLibrary, LoadsTheFirstThatThereIs) {
    const auto opened = open({"libacme.so.1", "libcuda.so.1", LACKING_DRIVER});
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->name(), "libcuda.so.1");
    EXPECT_NE(opened->symbol("cuMemGetHandleForAddressRange"), nullptr);
    EXPECT_EQ(opened->symbol("acme"), nullptr);
}

// A program can bring a driver's library under another name: PyTorch has a libhsa-runtime64.so of
// its own. A second copy of the driver would not know the memory of the first.
TEST(DriverLibrary, LoadsNoneWhereOneOfTheNamesIsLoaded) {
    const auto opened = open({"libutil.so.1", "libcuda.so.1"});
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->name(), "libcuda.so.1");
    EXPECT_TRUE(open({"libutil.so.1"})) << "the first name exists, too";
}

/// A driver whose functions are looked up until the test ends this.
struct SlowDriver {
    static Result<SlowDriver> make(const DriverLibrary& /*library*/) {
        if (slow) {
            looking.count_down();
            found.wait();
        }
        return SlowDriver{};
    }

    static inline bool slow = true;
    static inline std::latch looking{1};
    static inline std::latch found{1};
};

TEST(ProcessDriver, IsFoundInAForkedChildWhileAThreadOfTheParentLooksForIt) {
    const std::array names{"libcuda.so.1"};
    ProcessDriver<SlowDriver> driver(names, "Acme driver", "buy an Acme");
    const SlowDriver* first = nullptr;
    std::thread thread([&] { first = driver.loaded(); });
    SlowDriver::looking.wait();
    expect_success(fork_child(testing::time_limit, [&] {
        SlowDriver::slow = false;
        return driver.loaded() != nullptr ? 0 : 1;
    }));
    SlowDriver::slow = false;
    const SlowDriver* second = nullptr;
    std::thread other([&] { second = driver.loaded(); });
    SlowDriver::found.count_down();
    thread.join();
    other.join();
    EXPECT_NE(first, nullptr);
    EXPECT_EQ(first, second);
}

TEST(SymbolLookup, NamesAllThatIsMissingAndWhoHasIt) {
    const auto opened = open({LACKING_DRIVER});
    SymbolLookup lookup(*opened);
    int (*present)(unsigned) = nullptr;
    int (*missing)(unsigned) = nullptr;
    int (*also_missing)(unsigned) = nullptr;
    int (*unimportant)(unsigned) = [](unsigned) { return 1; };
    lookup.required("cuInit", present, "Acme 1");
    EXPECT_FALSE(lookup.error("update"));
    ASSERT_NE(present, nullptr);
    EXPECT_EQ(present(0), 0);
    lookup.optional("acme_extra", unimportant);
    EXPECT_EQ(unimportant, nullptr);
    EXPECT_FALSE(lookup.error("update"));
    lookup.required("acme_export", missing, "Acme 2");
    lookup.required("acme_flush", also_missing, "Acme 3");
    const auto error = lookup.error("update");
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOSYS);
    EXPECT_STREQ(error->function(), "dlsym");
    EXPECT_THAT(error->reason(), HasSubstr("is too old: it does not have acme_export (available "
                                           "since Acme 2), acme_flush (available since Acme 3)"));
    EXPECT_EQ(error->remedy(), "update");
}

} // namespace
} // namespace rdmabuf::detail
