// SPDX-License-Identifier: BSD-3-Clause
// Libraries that are not there or too old, devices that are none.
#include <array>
#include <cerrno>

#include "habana/synapse.hpp"
#include "habana/thunk.hpp"
#include "habana_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using HabanaDevice = HabanaTest;

TEST(HabanaDriver, ThatIsAbsentIsToldWithWhatWasTried) {
    constexpr std::array names{"libhl-of-nobody.so", "/nowhere/libhl.so"};
    const auto thunk = abi::Thunk::load(names);
    ASSERT_FALSE(thunk);
    EXPECT_EQ(thunk.error(), ENOENT);
    EXPECT_THAT(thunk.reason(),
                AllOf(HasSubstr("the Habana driver cannot be loaded: libhl-of-nobody.so: "),
                      HasSubstr("; /nowhere/libhl.so: ")));
    EXPECT_THAT(thunk.error_info().remedy(), HasSubstr("install habanalabs-thunk"));
    const auto synapse = abi::Synapse::load(names);
    ASSERT_FALSE(synapse);
    EXPECT_THAT(synapse.error_info().remedy(),
                AllOf(HasSubstr("install habanalabs-graph"), HasSubstr("add() memory")));
}

TEST(HabanaDriver, ThatIsTooOldIsToldWithWhatItLacks) {
    constexpr std::array names{LACKING_DRIVER};
    const auto thunk = abi::Thunk::load(names);
    ASSERT_FALSE(thunk);
    EXPECT_EQ(thunk.error(), ENOSYS);
    EXPECT_THAT(thunk.reason(),
                AllOf(HasSubstr(std::string(dram_call) + " (available since 2021)"),
                      Not(HasSubstr("hlthunk_close")), Not(HasSubstr(mapping_call))));
    const auto synapse = abi::Synapse::load(names);
    ASSERT_FALSE(synapse);
    EXPECT_THAT(synapse.reason(),
                AllOf(HasSubstr("synMemCopyAsync"), Not(HasSubstr("synInitialize"))));
}

TEST_F(HabanaDevice, ThatIsNotThereIsTold) {
    fake_habana_reset(0);
    const auto exporter = make_habana_exporter();
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("libhl-thunk.so finds no device"));
    EXPECT_THAT(found.remedy, HasSubstr("/dev/accel/accel_controlD0"));
    const auto error = error_of([&] { (void)exporter->allocate(1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_THAT(error->what(), HasSubstr("synNoDeviceFound (8)"));
}

TEST_F(HabanaDevice, IsNamedWhenItIsTheProgramsOwn) {
    EXPECT_EQ(of_device(abi::DeviceName::gaudi2)->availability().reason,
              "libhl-thunk.so, the program's Gaudi 0000:33:00.0");
    EXPECT_EQ(of_device(abi::DeviceName::gaudi)->availability().reason,
              "libhl-thunk.so, the program's Gaudi 1 0000:33:00.0");
}

TEST_F(HabanaDevice, MustBeOpenAndAGaudi) {
    const int closed = fake_habana_open(static_cast<int>(abi::DeviceName::gaudi2));
    fake_habana_reset(1);
    const int goya = fake_habana_open(static_cast<int>(abi::DeviceName::goya));
    ASSERT_EQ(goya, closed);
    struct Case {
        int fd;
        int error;
        const char* text;
    };
    for (const auto& [fd, expected, text] :
         {Case{1'000'000, EBADF, "is not open"}, Case{goya, ENODEV, "is not that of a Gaudi"},
          Case{0, ENODEV, "descriptor 0 is not that of a Gaudi"}}) {
        const auto exporter = make_habana_exporter({.fd = fd});
        const Availability found = exporter->availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, HasSubstr(text));
        EXPECT_NE(found.remedy, "");
        const auto error = refusal(*exporter, {.address = 4096, .length = 1});
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), expected);
    }
}

TEST_F(HabanaDevice, HasToBeKnownForMemoryOfTheProgram) {
    const auto error = refusal(*make_habana_exporter(), {.address = 4096, .length = 1});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_THAT(error->what(), HasSubstr("HabanaOptions::fd"));
}

} // namespace
} // namespace rdmabuf::testing
