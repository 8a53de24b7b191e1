// SPDX-License-Identifier: BSD-3-Clause
// What only Neuron's memory can get wrong. The runtime is a fake: this proves what we make of its
// answers, and not what that of AWS answers.
#include <cerrno>
#include <tuple>

#include <rdmabuf/resolver.hpp>

#include "neuron_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* export_call = "nrt_get_dmabuf_fd_v2";

using NeuronAdding = NeuronTest;
using NeuronExporting = NeuronTest;
using NeuronAllocating = NeuronTest;

TEST_F(NeuronAdding, MakesATensorOfTheProgramKnownUntilItIsRemoved) {
    const std::size_t size = 3 * page_size();
    const std::uint64_t address = fake_neuron_make(size);
    EXPECT_FALSE(exporter_->find(address));
    AddedRange range = exporter_->add(
        {.address = address, .length = size, .pci_address = "0000:10:1e.0", .generation = 77});
    const auto found = exporter_->find(address + size - 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->length, size);
    EXPECT_EQ(found->generation, 77U);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->pci_address, "0000:10:1e.0");
    EXPECT_FALSE(exporter_->find(address + size));
    range.remove();
    EXPECT_FALSE(exporter_->find(address));
    const auto error = error_of([&] { (void)exporter_->export_range(address, 1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EFAULT);
}

TEST_F(NeuronAdding, ExportsOnceAndFindingAndExportingRangesAskNothing) {
    const std::uint64_t address = fake_neuron_make(4 * page_size());
    const auto expected = put(address, 4 * page_size(), 1);
    const AddedRange range = exporter_->add({.address = address, .length = 4 * page_size()});
    EXPECT_EQ(fake_neuron_calls(export_call), 1U);
    EXPECT_EQ(fake_neuron_calls("nrt_get_dmabuf_fd"), 0U);
    const unsigned calls = fake_neuron_all_calls();
    const int local = 0;
    EXPECT_FALSE(exporter_->find(reinterpret_cast<std::uintptr_t>(&local)));
    EXPECT_TRUE(exporter_->find(address));
    const ExportedRange part = exporter_->export_range(address + page_size() + 5, 100);
    EXPECT_EQ(fake_neuron_all_calls(), calls);
    EXPECT_EQ(part.offset(), page_size() + 5);
    const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(page_size() + 5);
    EXPECT_EQ(bytes_through(part, false), std::vector(begin, begin + 100));
}

TEST_F(NeuronAdding, TakesASliceThatBeginsInsideAPage) {
    const std::uint64_t tensor = fake_neuron_make(4 * page_size());
    const auto expected = put(tensor, 4 * page_size(), 2);
    const std::size_t begin = page_size() + 513;
    const std::size_t length = page_size() + 11;
    const AddedRange slice = exporter_->add({.address = tensor + begin, .length = length});
    const ExportedRange range = exporter_->export_range(tensor + begin + 3, length - 3);
    EXPECT_EQ(range.offset(), 516U) << "as the runtime told, and 3 bytes on";
    const auto start = expected.begin() + static_cast<std::ptrdiff_t>(begin + 3);
    EXPECT_EQ(bytes_through(range, false),
              std::vector(start, start + static_cast<std::ptrdiff_t>(length - 3)));
}

TEST_F(NeuronAdding, RefusesNumbersThatCannotBe) {
    const std::uint64_t address = fake_neuron_make(page_size());
    const auto most = std::uint64_t{0} - page_size();
    for (const auto& [at, length, text] :
         {std::tuple{address, std::size_t{0}, "0 bytes"},
          std::tuple{std::uint64_t{0}, std::size_t{1}, "address 0"},
          std::tuple{most, 2 * page_size(), "does not fit into 64 bits"}}) {
        const auto error = refusal(at, length);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EINVAL);
        EXPECT_THAT(error->what(), HasSubstr(text));
    }
    EXPECT_EQ(fake_neuron_calls(export_call), 0U);
}

TEST_F(NeuronAdding, RefusesWhatOverlapsAndGivesItsDescriptorBack) {
    const std::uint64_t address = fake_neuron_make(2 * page_size());
    const AddedRange first = exporter_->add({.address = address, .length = page_size()});
    const auto before = open_descriptors();
    const auto error = refusal(address, 2 * page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EEXIST);
    EXPECT_LE(open_descriptors().size(), before.size()) << "the fake keeps what it shows";
}

TEST_F(NeuronAdding, ComesBeforeTheExportersOfSystemMemory) {
    const Resolver resolver = Resolver::system();
    EXPECT_EQ(resolver.exporter("neuron")->name(), "neuron");
    const Buffer buffer = resolver.allocator("neuron")->allocate(1);
    EXPECT_EQ(resolver.find(buffer.address()).exporter->name(), "neuron");
}

// What the runtime says

TEST_F(NeuronExporting, TellsTheRuntimesOwnNameOfWhatFails) {
    const std::uint64_t address = fake_neuron_make(page_size());
    const std::vector<std::tuple<int, int, const char*>> results{
        {abi::failure, EIO, "NRT_FAILURE (1)"},
        {abi::invalid_handle, EINVAL, "NRT_INVALID_HANDLE (3)"},
        {abi::resource, ENOMEM, "NRT_RESOURCE (4)"},
        {abi::timeout, ETIMEDOUT, "NRT_TIMEOUT (5)"},
        {abi::hardware_error, EIO, "NRT_HW_ERROR (6)"},
        {abi::uninitialized, ENODEV, "NRT_UNINITIALIZED (13): "},
        {abi::closed, ENODEV, "nrt_close() was called"},
        {1205, EIO, "unknown result (1205)"},
    };
    const auto before = open_descriptors();
    for (const auto& [status, expected, text] : results) {
        fake_neuron_fail(export_call, 1, status);
        const auto error = refusal(address, page_size());
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), expected);
        EXPECT_STREQ(error->function(), export_call);
        EXPECT_THAT(error->what(), HasSubstr(text));
    }
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_FALSE(exporter_->find(address));
}

TEST_F(NeuronExporting, TellsAFaultyRuntimeFromFaultyArguments) {
    const std::uint64_t address = fake_neuron_make(page_size());
    fake_neuron_set_version(2, 32, 31);
    fake_neuron_fail(export_call, 1, abi::invalid);
    auto error = refusal(address, page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EINVAL);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("NRT_INVALID (2)"),
                                     HasSubstr("libnrt 2.32.31.0 returns this for every export"),
                                     HasSubstr("use another version")));
    fake_neuron_set_version(2, 32, 32);
    error = refusal(address, page_size() + 1);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr(std::to_string(page_size() + 1) + " bytes at 0x"),
                      HasSubstr("a live tensor on a device"), Not(HasSubstr("another version"))));
}

TEST_F(NeuronExporting, BelievesTheRuntimeOnlyWhatTheDescriptorBearsOut) {
    const std::uint64_t address = fake_neuron_make(2 * page_size());
    fake_neuron_set_faults({.shortfall = page_size()});
    auto error = refusal(address, 2 * page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ERANGE);
    EXPECT_THAT(error->what(), HasSubstr("has " + std::to_string(page_size()) + " bytes"));

    fake_neuron_set_faults({.offset_error = page_size()});
    error = refusal(address, 2 * page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ERANGE);

    fake_neuron_set_faults({.offset_error = 8});
    error = refusal(address, page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_THAT(error->what(), HasSubstr("offset 8 in the dma-buf"));

    fake_neuron_set_faults({.no_descriptor = true});
    error = refusal(address, page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_THAT(error->what(), HasSubstr("returned no descriptor"));
}

TEST_F(NeuronExporting, LeavesNoDescriptorToOtherProgramsNorBehindIn10000Cycles) {
    const std::uint64_t address = fake_neuron_make(2 * page_size());
    fake_neuron_set_faults({.inheritable = true});
    const AddedRange range = exporter_->add({.address = address, .length = 2 * page_size()});
    const auto before = open_descriptors();
    for (int cycle = 0; cycle < 10'000; ++cycle) {
        const ExportedRange part = exporter_->export_range(address + 5, page_size());
        ASSERT_GE(part.fd(), 0);
    }
    EXPECT_EQ(open_descriptors(), before);
    for (const int fd : before) {
        EXPECT_TRUE(descriptors_.contains(fd) || closed_on_exec(fd)) << "descriptor " << fd;
    }
}

// Memory of allocate()

TEST_F(NeuronAllocating, InitialisesTheRuntimeOnceAndOnlyThen) {
    EXPECT_TRUE(exporter_->availability());
    EXPECT_EQ(fake_neuron_calls("nrt_init"), 0U) << "asking takes no NeuronCore";
    const Buffer first = exporter_->allocate(1);
    const Buffer second = exporter_->allocate(1);
    EXPECT_EQ(fake_neuron_calls("nrt_init"), 1U);
}

TEST_F(NeuronAllocating, LeavesTheRuntimeAloneThatTheProgramInitialised) {
    fake_neuron_make(page_size());
    const Buffer buffer = exporter_->allocate(1);
    EXPECT_EQ(fake_neuron_calls("nrt_init"), 0U);
}

TEST_F(NeuronAllocating, TellsWhyTheRuntimeCannotBeInitialised) {
    fake_neuron_fail("nrt_init", 1, abi::load_not_enough_cores);
    const auto error = error_of([&] { (void)exporter_->allocate(1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_STREQ(error->function(), "nrt_init");
    EXPECT_THAT(error->what(), AllOf(HasSubstr("NRT_LOAD_NOT_ENOUGH_NC (9)"),
                                     HasSubstr("NEURON_RT_VISIBLE_CORES")));
}

TEST_F(NeuronAllocating, FreesTheTensorWhenALaterStepFails) {
    fake_neuron_fail(export_call, 1, abi::resource);
    EXPECT_EQ(error_of([&] { (void)exporter_->allocate(1); })->error(), ENOMEM);
    EXPECT_EQ(fake_neuron_live(), 0U);
    fake_neuron_set_faults({.no_address = true});
    const auto error = error_of([&] { (void)exporter_->allocate(1); });
    ASSERT_TRUE(error);
    EXPECT_STREQ(error->function(), "nrt_tensor_get_va");
    EXPECT_EQ(fake_neuron_live(), 0U);
}

TEST_F(NeuronAllocating, KeepsTheTensorForWhatIsExportedOfIt) {
    auto buffer = std::make_unique<Buffer>(exporter_->allocate(page_size()));
    auto range =
        std::make_unique<ExportedRange>(exporter_->export_range(buffer->address(), page_size()));
    buffer.reset();
    EXPECT_EQ(fake_neuron_live(), 1U);
    range.reset();
    EXPECT_EQ(fake_neuron_live(), 0U);
}

TEST_F(NeuronAllocating, TellsWhichCopyFailed) {
    const Buffer buffer = exporter_->allocate(page_size());
    std::vector<std::byte> bytes(7);
    fake_neuron_fail("nrt_tensor_write", 1, abi::hardware_error);
    auto error = error_of([&] { buffer.copy_in(1, bytes); });
    ASSERT_TRUE(error);
    EXPECT_STREQ(error->function(), "nrt_tensor_write");
    EXPECT_THAT(error->what(), HasSubstr("7 bytes"));
    fake_neuron_fail("nrt_tensor_read", 1, abi::timeout);
    error = error_of([&] { buffer.copy_out(1, bytes); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ETIMEDOUT);
    EXPECT_STREQ(error->function(), "nrt_tensor_read");
}

TEST_F(NeuronAllocating, NeedsTheCoreThatWasAskedFor) {
    for (const int core : {-1, 2}) {
        const auto exporter = make_neuron_exporter({.core = core});
        const Availability found = exporter->availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, HasSubstr("there is no NeuronCore " + std::to_string(core) +
                                            "; number of NeuronCores: 2"));
        EXPECT_NE(found.remedy, "");
        const auto error = error_of([&] { (void)exporter->allocate(1); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ENODEV);
    }
    EXPECT_TRUE(make_neuron_exporter({.core = 1})->availability());
}

} // namespace
} // namespace rdmabuf::testing
