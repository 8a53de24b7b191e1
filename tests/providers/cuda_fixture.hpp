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
#include <rdmabuf/providers/cuda.hpp>

#include "cuda/cuda_abi.hpp"
#include "fake_cuda.hpp"
#include "support.hpp"

// As the program under test would call them.
extern "C" {
extern rdmabuf::detail::cuda::ContextPushCurrent cuCtxPushCurrent_v2;
extern rdmabuf::detail::cuda::ContextPopCurrent cuCtxPopCurrent_v2;
}

namespace rdmabuf::testing {

namespace abi = detail::cuda;

/// On a machine with two GPUs of the fake driver, of which a program already uses the memory. After
/// each test every context is as it was, and no descriptor is left.
class CudaTest : public ::testing::Test {
  protected:
    CudaTest() {
        fake_cuda_reset(2);
        if (!exporter_->availability()) {
            throw std::runtime_error("the fake driver does not work");
        }
    }
    ~CudaTest() override {
        EXPECT_EQ(fake_cuda_context_depth(), 0U) << "a context was left current";
        EXPECT_EQ(fake_cuda_primary_references(0), kept_primaries_);
        EXPECT_EQ(fake_cuda_primary_references(1), 0U);
        fake_cuda_reset(1);
        EXPECT_EQ(open_descriptors(), descriptors_) << "descriptors were leaked";
    }

    static std::uint64_t make(FakeCudaKind kind, std::size_t size = page_size(), int device = 0) {
        return fake_cuda_make(kind, size, device);
    }
    static std::uint64_t map(const std::vector<FakeCudaMapping>& mappings) {
        return fake_cuda_map(mappings.data(), static_cast<unsigned>(mappings.size()));
    }
    /// Puts a pattern behind the driver's back. @return it
    static std::vector<std::byte> put(std::uint64_t address, std::size_t length, unsigned seed) {
        const std::span bytes(static_cast<std::byte*>(fake_cuda_bytes(address)), length);
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

    /// By others than the exporter.
    unsigned kept_primaries_ = 0;
    std::set<int> descriptors_ = open_descriptors();
    std::shared_ptr<Allocator> exporter_ = make_cuda_exporter();
};

} // namespace rdmabuf::testing
