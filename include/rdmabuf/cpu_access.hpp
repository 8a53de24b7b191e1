// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// What the CPU is going to do to a dma-buf. The values are the DMA_BUF_SYNC_* bits of
/// linux/dma-buf.h.
enum class CpuAccessMode : std::uint8_t { read = 1, write = 2, read_write = 3 };

/// Brackets CPU access to a mapped dma-buf with DMA_BUF_IOCTL_SYNC, so that CPU and device caches
/// agree: START when made, END with the same mode when it goes. It orders caches and locks nothing.
/// Documentation/driver-api/dma-buf.rst, "CPU Access to DMA Buffer Objects".
class RDMABUF_EXPORT CpuAccess {
  public:
    /// @param dmabuf   not owned; -1 for memory that needs no synchronising
    /// @param mapping  a mapping of it
    /// @throws Error ENOTSUP for an empty mapping; otherwise what the ioctl says, EAGAIN and EINTR
    ///         being retried
    CpuAccess(int dmabuf, std::span<std::byte> mapping, CpuAccessMode mode);
    CpuAccess(CpuAccess&& other) noexcept
        : dmabuf_(std::exchange(other.dmabuf_, -1)),
          mapping_(std::exchange(other.mapping_, {})),
          mode_(other.mode_) {}
    CpuAccess& operator=(CpuAccess&&) = delete;
    CpuAccess(const CpuAccess&) = delete;
    CpuAccess& operator=(const CpuAccess&) = delete;
    /// An END that fails goes to the teardown failure handler.
    ~CpuAccess();

    /// The bytes. Not to be used after the guard is gone.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return mapping_; }

  private:
    int dmabuf_;
    std::span<std::byte> mapping_;
    CpuAccessMode mode_;
};

} // namespace rdmabuf
