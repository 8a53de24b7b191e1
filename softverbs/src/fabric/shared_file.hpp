// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/mapping.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Memory of another process that is mapped here for reading: a dma-buf, or a memfd with
/// F_SEAL_SHRINK.
class SharedFile {
  public:
    SharedFile() noexcept = default;

    /// Maps the first @p length bytes of @p fd. Returns 0 or an errno: EACCES (the file could
    /// shrink, so that reading it could raise SIGBUS; or it cannot be mapped), EINVAL (@p length is
    /// 0 or exceeds the file), ENOMEM.
    [[nodiscard]] int map(UniqueFd fd, std::uint64_t length) noexcept;

    /// Copies bytes from the mapping. For a dma-buf it brackets the copy with DMA_BUF_IOCTL_SYNC.
    /// Returns 0 or an errno: EINVAL (out of bounds), and the errors of DMA_BUF_IOCTL_SYNC.
    [[nodiscard]] int read(std::uint64_t offset, std::span<std::byte> into) const noexcept;

  private:
    Mapping mapping_;
    /// The descriptor of a dma-buf, for DMA_BUF_IOCTL_SYNC; empty for other files.
    UniqueFd dma_buf_;
};

} // namespace softverbs::fabric
