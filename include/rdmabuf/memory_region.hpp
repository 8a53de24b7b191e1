// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf {

struct MemoryRegionOptions {
    Access access = Access::local_write;
    /// What the NIC calls the first byte; by default its virtual address, or 0 with
    /// Access::zero_based.
    std::optional<std::uint64_t> iova = std::nullopt;
};

/// Registered host memory. The memory stays the caller's and must outlive the region.
/// ibv_reg_mr(3).
class RDMABUF_EXPORT MemoryRegion : public Region {
  public:
    /// @param address  the first byte. Needs no alignment.
    /// @param length   in bytes
    /// @throws Error EINVAL for a length of 0, remote write or atomics without local write, flags
    /// the
    ///         device refuses; ENOMEM above RLIMIT_MEMLOCK (the hint says so); EFAULT for memory
    ///         that is not there or is device memory, which DmaBufMR is for.
    MemoryRegion(const ProtectionDomain& pd, void* address, std::size_t length,
                 const MemoryRegionOptions& options = {});

    /// The first byte of the memory.
    [[nodiscard]] void* address() const noexcept { return address_; }

  private:
    void* address_;
};

} // namespace rdmabuf
