// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// The kind of CPU access to a dma-buf. The values are DMA_BUF_SYNC_READ, _WRITE and _RW of
/// linux/dma-buf.h.
enum class CpuAccessMode : std::uint8_t { read = 1, write = 2, read_write = 3 };

/// Keeps CPU and device caches coherent while the CPU accesses a mapped dma-buf. The constructor
/// calls DMA_BUF_IOCTL_SYNC with DMA_BUF_SYNC_START. The destructor calls DMA_BUF_IOCTL_SYNC with
/// DMA_BUF_SYNC_END and the same mode. This object is not a lock. See "CPU Access to DMA Buffer
/// Objects" in Documentation/driver-api/dma-buf.rst of Linux.
class RDMABUF_EXPORT CpuAccess {
  public:
    /// Begins the CPU access.
    /// @param dmabuf   the borrowed descriptor of the dma-buf; -1 for memory that needs no
    ///                 synchronisation
    /// @param mapping  the bytes of the dma-buf that are mapped into this process
    /// @throws Error ENOTSUP if @p mapping is empty; the errno of DMA_BUF_IOCTL_SYNC if the ioctl
    ///         fails. After EAGAIN and EINTR the constructor repeats the ioctl.
    CpuAccess(int dmabuf, std::span<std::byte> mapping, CpuAccessMode mode);
    CpuAccess(CpuAccess&& other) noexcept
        : dmabuf_(std::exchange(other.dmabuf_, -1)),
          mapping_(std::exchange(other.mapping_, {})),
          mode_(other.mode_) {}
    CpuAccess& operator=(CpuAccess&&) = delete;
    CpuAccess(const CpuAccess&) = delete;
    CpuAccess& operator=(const CpuAccess&) = delete;
    /// Ends the CPU access. If DMA_BUF_IOCTL_SYNC fails, the destructor calls the
    /// TeardownFailureHandler.
    ~CpuAccess();

    /// Returns the mapped bytes, which must not be accessed after this object is destroyed.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return mapping_; }

  private:
    int dmabuf_;
    std::span<std::byte> mapping_;
    CpuAccessMode mode_;
};

} // namespace rdmabuf
