// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <system_error>

namespace rdmabuf::transport {

class Channel;

namespace detail {
class ChannelState;
} // namespace detail

/// The tag of a message. A receive accepts the messages whose tag is equal to its own tag in all
/// bits of its mask.
using Tag = std::uint64_t;
/// The mask of a receive for exactly one tag.
inline constexpr Tag full_mask = std::numeric_limits<Tag>::max();

/// Identifies a request. A Request can be copied and discarded; it owns nothing. A Request is empty
/// after its completion was reported.
struct Request {
    static constexpr std::uint32_t empty_index = 0xffffffff;
    /// The request has completed when it was started. `generation` is then the length of its
    /// message in bytes.
    static constexpr std::uint32_t completed_index = 0xfffffffe;

    std::uint32_t channel = 0;
    std::uint32_t generation = 0;
    std::uint32_t index = empty_index;
};

/// The state of a request, as Channel::test() returns it.
struct Completion {
    /// True if the request has ended, successfully or not.
    bool done = false;
    /// The error with which the request failed; no error while the request is in flight, or if it
    /// succeeded. Channel lists the errors.
    std::error_code error = {};
    /// For a successful request: the number of bytes transferred. For a receive that failed with
    /// EMSGSIZE: the length of the message. For other failed requests: 0.
    std::size_t bytes = 0;
    /// For a receive: the tag of the message.
    Tag tag = 0;
    /// For a receive: Channel::number() of the channel from which the message came.
    std::uint32_t channel = 0;
    /// The pointer with which the program started the request, or nullptr.
    void* context = nullptr;
};

/// Describes a message that has arrived and for which no receive is posted yet. Channel::probe().
struct MessageInfo {
    Tag tag = 0;
    /// The length of the message in bytes.
    std::size_t length = 0;
    /// Channel::number() of the channel from which the message came.
    std::uint32_t channel = 0;
};

} // namespace rdmabuf::transport
