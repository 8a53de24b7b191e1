// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/mapping.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// A read-only mapping of memory that another process shares with this process: a dma-buf, or a
/// memfd with F_SEAL_SHRINK.
class SharedFile {
  public:
    SharedFile() noexcept = default;

    /// Maps the first @p length bytes of @p fd. Returns 0 or an errno: EACCES (the file cannot be
    /// mapped, or it could shrink, so that reading it could raise SIGBUS), EINVAL (@p length is 0
    /// or larger than the file), ENOMEM.
    [[nodiscard]] int map(UniqueFd fd, std::uint64_t length) noexcept;

    /// Copies bytes from the mapping. Calls DMA_BUF_IOCTL_SYNC before and after the copy if the
    /// file is a dma-buf. Returns 0 or an errno: EINVAL (the range exceeds the mapping), or the
    /// error of the ioctl.
    [[nodiscard]] int read(std::uint64_t offset, std::span<std::byte> into) const noexcept;

  private:
    Mapping mapping_;
    /// The file descriptor of a dma-buf, for DMA_BUF_IOCTL_SYNC. Empty if the file is not a
    /// dma-buf.
    UniqueFd dma_buf_;
};

} // namespace softverbs::fabric
