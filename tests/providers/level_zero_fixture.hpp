// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/level_zero.hpp>

#include "fake_level_zero.hpp"
#include "level_zero/level_zero_abi.hpp"
#include "support.hpp"

namespace rdmabuf::testing {

namespace abi = detail::level_zero;

/// On a machine with two GPUs of the fake driver, and a program that has a context of its own and
/// has told of it. After each test the driver has the descriptors that it keeps, and nobody
/// another.
class LevelZeroTest : public ::testing::Test {
  protected:
    LevelZeroTest() {
        fake_level_zero_reset(2);
        if (!exporter_->availability()) {
            throw std::runtime_error("the fake driver does not work");
        }
    }
    ~LevelZeroTest() override {
        EXPECT_FALSE(fake_level_zero_descriptor_was_closed()) << "one that is the driver's own";
        EXPECT_EQ(fake_level_zero_ipc_handles(), 0U) << "IPC handles were not given back";
        fake_level_zero_reset(1);
        EXPECT_EQ(open_descriptors(), descriptors_) << "descriptors were leaked";
    }

    static LevelZeroOptions with_context() {
        return {.contexts = {fake_level_zero_program_context()}};
    }
    static std::uint64_t make(FakeLevelZeroKind kind, std::size_t size = page_size(),
                              unsigned gpu = 0) {
        return fake_level_zero_make(kind, size, gpu, true);
    }
    static std::uint64_t make_undescribed(FakeLevelZeroKind kind, std::size_t size = page_size()) {
        return fake_level_zero_make(kind, size, 0, false);
    }
    /// Puts a pattern behind the driver's back. @return it
    static std::vector<std::byte> put(std::uint64_t address, std::size_t length, unsigned seed) {
        const std::span bytes(static_cast<std::byte*>(fake_level_zero_bytes(address)), length);
        fill(bytes, seed);
        return {bytes.begin(), bytes.end()};
    }
    static std::vector<std::byte> bytes_of(const ExportedRange& range) {
        return bytes_through(range, false);
    }
    /// Why a range is not exported.
    std::optional<Error> refusal(std::uint64_t address, std::size_t length = 1) const {
        return error_of([&] { (void)exporter_->export_range(address, length); });
    }

    std::set<int> descriptors_ = open_descriptors();
    std::shared_ptr<Allocator> exporter_ = make_level_zero_exporter(with_context());
};

} // namespace rdmabuf::testing
