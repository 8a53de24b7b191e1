// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

namespace rdmabuf::detail {

/// The size of a dma-buf, or of a file that stands in for one, in bytes. None where the descriptor
/// cannot tell. Moves no file's position.
[[nodiscard]] std::optional<std::uint64_t> dmabuf_size(int fd) noexcept;

} // namespace rdmabuf::detail
