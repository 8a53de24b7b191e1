// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <system_error>

namespace rdmabuf::transport {

/// By which a receive knows its message.
using Tag = std::uint64_t;

/// Something that a channel is doing. Plain bytes: copy it, forget it, compare nothing.
struct Request {
    std::uint32_t channel = 0;
    std::uint32_t generation = 0;
    std::uint32_t index = 0;
};

/// What has become of a request.
struct Outcome {
    /// Whether it has ended, well or not. It is forgotten then: asking again says ESTALE.
    bool done = false;
    /// Why it failed; none while it is under way, and none when it worked. See Channel.
    std::error_code error = {};
    /// What was moved; of a receive the length of the message, also when that was too long.
    std::size_t bytes = 0;
};

} // namespace rdmabuf::transport
