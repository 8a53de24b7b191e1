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
#include <rdmabuf/providers/rocm.hpp>

#include "fake_rocm.hpp"
#include "rocm/rocm_abi.hpp"
#include "support.hpp"

// As the program under test would call them.
extern "C" {
extern rdmabuf::detail::rocm::Init hsa_init;
extern rdmabuf::detail::rocm::ShutDown hsa_shut_down;
extern rdmabuf::detail::rocm::CloseDmaBuf hsa_amd_portable_close_dmabuf;
}

namespace rdmabuf::testing {

namespace abi = detail::rocm;

/// On a machine with two GPUs of the fake driver, of which a program already uses the memory. After
/// each test HSA is as the program had it, and nothing of the exporter's is left.
class RocmTest : public ::testing::Test {
  protected:
    RocmTest() {
        fake_rocm_reset(2);
        if (hsa_init() != abi::success) {
            throw std::runtime_error("the fake driver does not work");
        }
    }
    ~RocmTest() override {
        exporter_.reset();
        EXPECT_EQ(fake_rocm_references(), 1U) << "HSA is not as it was";
        EXPECT_EQ(fake_rocm_watched(), 0U) << "the driver would still call back";
        EXPECT_EQ(fake_rocm_open_exports(), 0U) << "what was exported has not gone back";
        fake_rocm_reset(1);
        EXPECT_EQ(open_descriptors(), descriptors_) << "descriptors were leaked";
    }

    static std::uint64_t make(FakeRocmKind kind, std::size_t size = page_size(), int gpu = 0) {
        return fake_rocm_make(kind, size, gpu);
    }
    /// Puts a pattern behind the driver's back. @return it
    static std::vector<std::byte> put(std::uint64_t address, std::size_t length, unsigned seed) {
        const std::span bytes(static_cast<std::byte*>(fake_rocm_bytes(address)), length);
        fill(bytes, seed);
        return {bytes.begin(), bytes.end()};
    }
    static std::vector<std::byte> bytes_of(const ExportedRange& range) {
        return bytes_through(range, false);
    }
    /// Why a range is not exported.
    std::optional<Error> refusal(std::uint64_t address, std::size_t length,
                                 MappingKind mapping = MappingKind::standard) const {
        return error_of([&] { (void)exporter_->export_range(address, length, mapping); });
    }

    std::set<int> descriptors_ = open_descriptors();
    std::shared_ptr<Allocator> exporter_ = make_rocm_exporter();
};

} // namespace rdmabuf::testing
