// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// The kind of CPU access to a dma-buf. The values are the DMA_BUF_SYNC_* bits of linux/dma-buf.h.
enum class CpuAccessMode : std::uint8_t { read = 1, write = 2, read_write = 3 };

/// Keeps CPU and device caches coherent while the CPU accesses a mapped dma-buf. The constructor
/// calls DMA_BUF_IOCTL_SYNC with DMA_BUF_SYNC_START. The destructor calls DMA_BUF_IOCTL_SYNC with
/// DMA_BUF_SYNC_END and the same mode. This object is not a lock.
/// Documentation/driver-api/dma-buf.rst, "CPU Access to DMA Buffer Objects".
class RDMABUF_EXPORT CpuAccess {
  public:
    /// Begins the CPU access.
    /// @param dmabuf   the borrowed descriptor of the dma-buf; -1 for memory that needs no
    ///                 synchronisation
    /// @param mapping  the bytes of the dma-buf that are mapped into this process
    /// @throws Error ENOTSUP if the mapping is empty; otherwise the errno of the ioctl. The ioctl
    ///         is repeated after EAGAIN and EINTR.
    CpuAccess(int dmabuf, std::span<std::byte> mapping, CpuAccessMode mode);
    CpuAccess(CpuAccess&& other) noexcept
        : dmabuf_(std::exchange(other.dmabuf_, -1)),
          mapping_(std::exchange(other.mapping_, {})),
          mode_(other.mode_) {}
    CpuAccess& operator=(CpuAccess&&) = delete;
    CpuAccess(const CpuAccess&) = delete;
    CpuAccess& operator=(const CpuAccess&) = delete;
    /// Ends the CPU access. If the ioctl fails, the destructor calls the TeardownFailureHandler.
    ~CpuAccess();

    /// The mapped bytes, which must not be accessed after this object is destroyed.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return mapping_; }

  private:
    int dmabuf_;
    std::span<std::byte> mapping_;
    CpuAccessMode mode_;
};

} // namespace rdmabuf
