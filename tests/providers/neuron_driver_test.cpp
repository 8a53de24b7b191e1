// SPDX-License-Identifier: BSD-3-Clause
// The runtime that is not there or too old, the kernel module that must not be used.
#include "neuron/neuron_driver.hpp"

#include <array>
#include <cerrno>

#include "neuron_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(NeuronDriver, ThatIsAbsentIsToldWithWhatWasTried) {
    constexpr std::array names{"libnrt-of-nobody.so.1", "/nowhere/libnrt.so.1"};
    const auto loaded = abi::Driver::load(names);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error(), ENOENT);
    EXPECT_THAT(loaded.reason(),
                AllOf(HasSubstr("the Neuron runtime cannot be loaded: libnrt-of-nobody.so.1: "),
                      HasSubstr("; /nowhere/libnrt.so.1: ")));
    EXPECT_THAT(loaded.error_info().remedy(), HasSubstr("install aws-neuronx-runtime-lib"));
}

TEST(NeuronDriver, ThatIsTooOldIsToldWithWhatItLacks) {
    constexpr std::array names{LACKING_DRIVER};
    const auto loaded = abi::Driver::load(names);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error(), ENOSYS);
    EXPECT_THAT(loaded.reason(), AllOf(HasSubstr("nrt_get_dmabuf_fd (available since 2023)"),
                                       HasSubstr("nrt_tensor_get_va"), Not(HasSubstr("nrt_init")),
                                       Not(HasSubstr("_v2"))));
    EXPECT_THAT(loaded.error_info().remedy(), HasSubstr("update aws-neuronx-runtime-lib"));
}

TEST(NeuronDriver, WithoutADeviceIsTold) {
    fake_neuron_reset(0);
    Availability found = make_neuron_exporter()->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("no NeuronCore 0; number of NeuronCores: 0"));
    fake_neuron_fail("nrt_get_total_nc_count", 1, abi::failure);
    found = make_neuron_exporter()->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("NRT_FAILURE (1)"));
    EXPECT_THAT(found.remedy, AllOf(HasSubstr("aws-neuronx-dkms"), HasSubstr("/dev/neuron0")));
}

TEST(NeuronDriver, MayNotTellItsVersion) {
    fake_neuron_reset(1);
    fake_neuron_fail("nrt_get_version", 1, abi::invalid);
    EXPECT_EQ(make_neuron_exporter()->availability().reason, "libnrt.so.1, NeuronCores: 1");
}

TEST(NeuronKernelModule, ThatClosesDescriptorsTwiceIsRefused) {
    for (const char* const version : {"2.16.7.0", "2.24.7.0", "2.27.4.0"}) {
        const auto refusal = abi::check_kernel_module(std::string(version));
        ASSERT_TRUE(refusal) << version;
        EXPECT_EQ(refusal->error(), EOPNOTSUPP);
        EXPECT_THAT(refusal->reason(), HasSubstr(version));
        EXPECT_THAT(refusal->remedy(), HasSubstr("aws-neuronx-dkms"));
    }
    for (const char* const version : {"2.28.1.0", "2.100.0.0", "3.0.0.0", "2.x.9372.0", ""}) {
        EXPECT_FALSE(abi::check_kernel_module(std::string(version))) << version;
    }
    EXPECT_FALSE(abi::check_kernel_module(std::nullopt)) << "nothing is known of it";
}

} // namespace
} // namespace rdmabuf::testing
