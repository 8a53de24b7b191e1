// SPDX-License-Identifier: BSD-3-Clause
// Tensors of a program registered and written to, on softverbs.
#include <rdmabuf/dmabuf_mr.hpp>

#include "interior_writes.hpp"
#include "loopback.hpp"
#include "neuron_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class NeuronRegistration : public NeuronTest {
  protected:
    /// What the first queue pair of a process opens stays open.
    NeuronRegistration() {
        Loopback().connect();
        descriptors_ = open_descriptors();
    }
};

TEST_F(NeuronRegistration, AsksTheRuntimeNothingWhenItEnds) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    const std::uint64_t address = fake_neuron_make(2 * page_size());
    std::optional<AddedRange> added(
        exporter_->add({.address = address, .length = 2 * page_size()}));
    std::optional<ExportedRange> range(exporter_->export_range(address + 3, page_size()));
    std::optional<DmaBufMR> first(std::in_place, pd, *range);
    std::optional<DmaBufMR> second(std::in_place, pd, *range);
    EXPECT_EQ(first->iova(), address + 3);
    const unsigned calls = fake_neuron_all_calls();
    added.reset();
    first.reset();
    range.reset();
    second.reset();
    EXPECT_EQ(fake_neuron_all_calls(), calls);
}

TEST_F(NeuronRegistration, TakesInteriorRangesOfAnySizeAndTouchesNothingAround) {
    constexpr std::size_t size = 300'001;
    const std::uint64_t from = fake_neuron_make(size + 64);
    const std::uint64_t to = fake_neuron_make(size);
    // One of them a slice.
    const AddedRange source = exporter_->add({.address = from + 64, .length = size});
    const AddedRange target = exporter_->add({.address = to, .length = size});
    expect_interior_writes(*exporter_, from + 64, to, size, fake_neuron_bytes);
}

} // namespace
} // namespace rdmabuf::testing
