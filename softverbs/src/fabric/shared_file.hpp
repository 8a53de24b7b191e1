// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/mapping.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Memory of another process that this one has mapped to read it: a dma-buf, or a memfd that cannot
/// shrink.
class SharedFile {
  public:
    SharedFile() noexcept = default;

    /// Maps the first @p length bytes of @p fd. 0 or an errno: EACCES (it could shrink, which would
    /// make reading it raise SIGBUS; or it cannot be mapped), EINVAL (longer than the file),
    /// ENOMEM.
    [[nodiscard]] int map(UniqueFd fd, std::uint64_t length) noexcept;

    /// Copies bytes out, between the begin and the end of a CPU access where it is a dma-buf. 0 or
    /// an errno: EINVAL (out of bounds), and what DMA_BUF_IOCTL_SYNC said.
    [[nodiscard]] int read(std::uint64_t offset, std::span<std::byte> into) const noexcept;

  private:
    Mapping mapping_;
    /// Held for a dma-buf only.
    UniqueFd dma_buf_;
};

} // namespace softverbs::fabric
