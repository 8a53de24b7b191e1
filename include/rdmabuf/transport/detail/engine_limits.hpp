// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmabuf::transport::detail {

/// Maximum length of inline data of a queue pair, in bytes.
inline constexpr std::size_t max_inline = 512;
/// Maximum number of entries of the send queue of a queue pair to the peer. A device may support
/// fewer entries.
inline constexpr std::uint32_t max_send_depth = 256;
/// Maximum number of entries of the send queue of a loopback queue pair.
inline constexpr std::uint32_t max_self_depth = 64;

} // namespace rdmabuf::transport::detail
