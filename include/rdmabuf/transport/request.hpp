// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <system_error>

namespace rdmabuf::transport {

/// The tag of a message or of a receive. A message matches a receive with the same tag.
using Tag = std::uint64_t;

/// Identifies a request of a channel. A request can be copied and discarded; it owns nothing.
struct Request {
    std::uint32_t channel = 0;
    std::uint32_t generation = 0;
    std::uint32_t index = 0;
};

/// The state of a request, as Channel::test() returns it.
struct Outcome {
    /// True if the request has ended, successfully or not. This is reported only once: the next
    /// test() of the request fails with ESTALE.
    bool done = false;
    /// The error with which the request failed; no error while the request is in flight, or if it
    /// succeeded. Channel lists the errors.
    std::error_code error = {};
    /// The number of bytes transferred. For a receive: the length of the message, even if the
    /// message was longer than the receive buffer.
    std::size_t bytes = 0;
};

} // namespace rdmabuf::transport
