// SPDX-License-Identifier: BSD-3-Clause
// What only the Neuron runtime has: versions with faults, and its initialisation.
#include <rdmabuf/providers/neuron.hpp>

#include "drivers/driver_fixture.hpp"
#include "neuron/neuron_driver.hpp"

namespace rdmabuf::testing {
namespace {

namespace abi = detail::neuron;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using NeuronExporting = DriverTest;
using NeuronAllocating = DriverTest;
using NeuronAvailability = DriverTest;

TEST_F(NeuronExporting, DistinguishesAFaultyRuntimeFromFaultyArguments) {
    const std::uint64_t address = make();
    fake::set(fake::Setting::version, 2'032'031);
    fake::fail(driver_row().export_call, abi::invalid);
    EXPECT_THAT(refusal(address), fails_with(driver_row().export_call, EINVAL, "NRT_INVALID (2)",
                                             "libnrt 2.32.31.0 returns this for every export",
                                             "use another version"));
    fake::set(fake::Setting::version, 2'032'032);
    const auto error = refusal(address, page_size() + 1);
    EXPECT_THAT(error, fails_with(EINVAL, std::to_string(page_size() + 1) + " bytes at 0x",
                                  "a live tensor on a device"));
    EXPECT_THAT(error->what(), Not(HasSubstr("another version")));
    EXPECT_FALSE(exporter_->find(address));
}

TEST_F(NeuronExporting, ChecksTheReportedOffset) {
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    fake::set(fake::Setting::displacement, static_cast<std::int64_t>(page_size()));
    EXPECT_THAT(refusal(address, 2 * page_size()), fails_with(ERANGE));
    fake::set(fake::Setting::displacement, 8);
    EXPECT_THAT(refusal(address, page_size()), fails_with(EIO, "offset 8 in the dma-buf"));
}

// ndmabuf_attach() of aws-neuron-driver refuses a second attachment to a dma-buf with EPERM.
TEST_F(NeuronExporting, MakesADmaBufForEachRegistration) {
    const std::uint64_t address = make(fake::Kind::device, 4 * page_size());
    const auto expected = put(address, 4 * page_size(), 1);
    const auto added = add(address, 4 * page_size());
    EXPECT_TRUE(exporter_->find(address)->single_import);
    const unsigned exports = fake::calls(driver_row().export_call);
    for (int time = 0; time < 2; ++time) {
        EXPECT_EQ(bytes_of(exporter_->export_range(address, 4 * page_size())), expected);
    }
    EXPECT_EQ(fake::calls(driver_row().export_call), exports + 2);
    const Buffer buffer = allocator_->allocate(1);
    EXPECT_TRUE(allocator_->find(buffer.address())->single_import);
}

TEST_F(NeuronExporting, DoesNotCallTheOlderFunction) {
    EXPECT_FALSE(refusal(make()));
    EXPECT_EQ(fake::calls("nrt_get_dmabuf_fd"), 0U);
}

TEST_F(NeuronAllocating, InitialisesTheRuntimeOnceAndNotForAvailability) {
    EXPECT_TRUE(exporter_->availability());
    EXPECT_EQ(fake::calls("nrt_init"), 0U) << "it would reserve a NeuronCore";
    fake::fail("nrt_init", abi::load_not_enough_cores);
    EXPECT_THAT(refusal_to_allocate(), fails_with("nrt_init", ENODEV, "NRT_LOAD_NOT_ENOUGH_NC (9)",
                                                  "NEURON_RT_VISIBLE_CORES"));
    const Buffer first = exporter_->allocate(1);
    const Buffer second = exporter_->allocate(1);
    EXPECT_EQ(fake::calls("nrt_init"), 2U);
}

TEST_F(NeuronAllocating, DoesNotInitialiseTheRuntimeThatTheProgramInitialised) {
    make();
    const Buffer buffer = exporter_->allocate(1);
    EXPECT_EQ(fake::calls("nrt_init"), 0U);
}

TEST_F(NeuronAllocating, FreesATensorWithoutAnAddress) {
    fake::set(fake::Setting::no_address, 1);
    EXPECT_STREQ(refusal_to_allocate()->function(), "nrt_tensor_get_va");
    EXPECT_EQ(fake::live(), 0U);
}

TEST_F(NeuronAllocating, NeedsAnExistingCore) {
    for (const int core : {-1, 2}) {
        const auto exporter = make_neuron_exporter({.core = core});
        const Availability found = exporter->availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, HasSubstr("there is no NeuronCore " + std::to_string(core) +
                                            "; number of NeuronCores: 2"));
        EXPECT_NE(found.remedy, "");
        EXPECT_THAT(error_of([&] { (void)exporter->allocate(1); }), fails_with(ENODEV));
    }
    EXPECT_TRUE(make_neuron_exporter({.core = 1})->availability());
}

TEST_F(NeuronAvailability, ReportsWhichQueryFailed) {
    fake::fail("nrt_get_total_nc_count", abi::failure);
    const Availability found = exporter_->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("NRT_FAILURE (1)"));
    EXPECT_THAT(found.remedy, AllOf(HasSubstr("aws-neuronx-dkms"), HasSubstr("/dev/neuron0")));
    fake::fail("nrt_get_version", abi::invalid);
    EXPECT_EQ(exporter_->availability().reason, "libnrt.so.1, NeuronCores: 2");
}

} // namespace
} // namespace rdmabuf::testing
