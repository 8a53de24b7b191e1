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
#include <rdmabuf/providers/habana.hpp>

#include "fake_habana.hpp"
#include "habana/habana_abi.hpp"
#include "support.hpp"

namespace rdmabuf::testing {

namespace abi = detail::habana;

inline constexpr const char* mapping_call = "hlthunk_device_mapped_memory_export_dmabuf_fd";
inline constexpr const char* dram_call = "hlthunk_device_memory_export_dmabuf_fd";

/// On a machine with a Gaudi 2 of the fake driver. After each test no descriptor is left, and no
/// device acquired.
class HabanaTest : public ::testing::Test {
  protected:
    HabanaTest() { fake_habana_reset(1); }
    ~HabanaTest() override {
        EXPECT_FALSE(fake_habana_acquired());
        EXPECT_EQ(fake_habana_live(), 0U);
        fake_habana_reset(1);
        EXPECT_EQ(open_descriptors(), descriptors_) << "descriptors were leaked";
    }

    /// An exporter for a device that the program has open.
    static std::shared_ptr<HabanaExporter> of_device(abi::DeviceName name) {
        return make_habana_exporter({.fd = fake_habana_open(static_cast<int>(name))});
    }
    /// Puts a pattern behind the driver's back. @return it
    static std::vector<std::byte> put(std::uint64_t address, std::size_t length, unsigned seed) {
        const std::span bytes(static_cast<std::byte*>(fake_habana_bytes(address)), length);
        fill(bytes, seed);
        return {bytes.begin(), bytes.end()};
    }
    /// Why memory is not added.
    static std::optional<Error> refusal(HabanaExporter& exporter, const HabanaMemory& memory) {
        return error_of([&] { (void)exporter.add(memory); });
    }

    std::set<int> descriptors_ = open_descriptors();
};

} // namespace rdmabuf::testing
