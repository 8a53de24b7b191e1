// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmabuf::transport::detail {

/// The most that a queue pair may be asked to carry inside a request, in bytes.
inline constexpr std::size_t max_inline = 512;
/// Requests that a queue pair to the peer holds, where the device has as many, and one to itself.
inline constexpr std::uint32_t max_send_depth = 256;
inline constexpr std::uint32_t max_self_depth = 64;

} // namespace rdmabuf::transport::detail
