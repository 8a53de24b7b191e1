// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/neuron.hpp>

#include "fake_neuron.hpp"
#include "neuron/neuron_abi.hpp"
#include "support.hpp"

namespace rdmabuf::testing {

namespace abi = detail::neuron;

/// On a machine with two NeuronCores of the fake runtime. After each test no descriptor is left.
class NeuronTest : public ::testing::Test {
  protected:
    NeuronTest() { fake_neuron_reset(2); }
    ~NeuronTest() override {
        fake_neuron_reset(2);
        EXPECT_EQ(open_descriptors(), descriptors_) << "descriptors were leaked";
    }

    /// Puts a pattern behind the runtime's back. @return it
    static std::vector<std::byte> put(std::uint64_t address, std::size_t length, unsigned seed) {
        const std::span bytes(static_cast<std::byte*>(fake_neuron_bytes(address)), length);
        fill(bytes, seed);
        return {bytes.begin(), bytes.end()};
    }
    /// Why memory is not added.
    std::optional<Error> refusal(std::uint64_t address, std::size_t length) const {
        return error_of([&] { (void)exporter_->add({.address = address, .length = length}); });
    }

    std::set<int> descriptors_ = open_descriptors();
    std::shared_ptr<NeuronExporter> exporter_ = make_neuron_exporter();
};

} // namespace rdmabuf::testing
