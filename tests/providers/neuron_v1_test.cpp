// SPDX-License-Identifier: BSD-3-Clause
// A runtime without nrt_get_dmabuf_fd_v2(): it exports from the first address of an allocation on.
#include <cerrno>

#include "exporter_suite.hpp"
#include "neuron_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Subject subject{.name = "neuron",
                      .make = [] { return make_neuron_exporter(); },
                      .machine =
                          [] {
                              fake_neuron_reset(2);
                              return nullptr;
                          },
                      .works_with = "without nrt_get_dmabuf_fd_v2: whole allocations only",
                      .makes_dmabufs = false,
                      .mapped = false};

INSTANTIATE_TEST_SUITE_P(NeuronV1, ExporterSuite, ::testing::Values(subject));

using NeuronV1 = NeuronTest;

TEST_F(NeuronV1, ExportsInteriorRangesOfAnAllocationFromItsBase) {
    const std::uint64_t address = fake_neuron_make(3 * page_size());
    const auto expected = put(address, 3 * page_size(), 1);
    const AddedRange added = exporter_->add({.address = address, .length = 3 * page_size()});
    EXPECT_EQ(fake_neuron_calls("nrt_get_dmabuf_fd"), 1U);
    const ExportedRange range = exporter_->export_range(address + page_size() + 9, page_size());
    EXPECT_EQ(range.offset(), page_size() + 9);
    const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(page_size() + 9);
    EXPECT_EQ(bytes_through(range, false),
              std::vector(begin, begin + static_cast<std::ptrdiff_t>(page_size())));
}

TEST_F(NeuronV1, RefusesASliceInsideAPageBeforeTheRuntimeIsAsked) {
    const std::uint64_t address = fake_neuron_make(page_size());
    const auto error = refusal(address + 24, 100);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EINVAL);
    EXPECT_STREQ(error->function(), "nrt_get_dmabuf_fd");
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("24 bytes into a page"), HasSubstr("nrt_get_dmabuf_fd_v2"),
                      HasSubstr("add the whole allocation")));
    EXPECT_EQ(fake_neuron_calls("nrt_get_dmabuf_fd"), 0U);
}

TEST_F(NeuronV1, TellsOfASliceThatTheRuntimeRefuses) {
    const std::uint64_t address = fake_neuron_make(2 * page_size());
    const auto error = refusal(address + page_size(), page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EINVAL);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("NRT_INVALID (2)"),
                                     HasSubstr("the first address of an allocation")));
    EXPECT_FALSE(exporter_->find(address + page_size()));
}

} // namespace
} // namespace rdmabuf::testing
