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

/// The tag of a message. A receive has a tag and a mask. It accepts messages whose tag is equal to
/// the tag of the receive in all bits that are set in the mask.
using Tag = std::uint64_t;
/// The mask of a receive that accepts exactly one tag.
inline constexpr Tag full_mask = std::numeric_limits<Tag>::max();

/// Identifies a request. A Request can be copied and destroyed without an effect on the operation.
/// When test(), wait() or wait_any() reports the completion, the Request that was passed becomes
/// empty.
struct Request {
    static constexpr std::uint32_t empty_index = 0xffffffff;
    /// The value of `index` for a send that completed inside the call that started it. `generation`
    /// is then the length of the message in bytes.
    static constexpr std::uint32_t completed_index = 0xfffffffe;

    std::uint32_t channel = 0;
    std::uint32_t generation = 0;
    std::uint32_t index = empty_index;
};

/// The state of a request; see Channel::test() and Endpoint::poll_completions().
struct Completion {
    /// True if the request has ended, successfully or not.
    bool done = false;
    /// The error with which the request failed. There is no error while the request is in flight or
    /// if it succeeded. See Channel for a list of the errors.
    std::error_code error = {};
    /// For a successful request: the number of bytes transferred. For a receive that failed with
    /// EMSGSIZE: the length of the message. For other failed requests: 0.
    std::size_t bytes = 0;
    /// For a receive: the tag of the message.
    Tag tag = 0;
    /// For a receive: Channel::number() of the channel on which the message arrived.
    std::uint32_t channel = 0;
    /// The `context` pointer with which the program started the request, or nullptr.
    void* context = nullptr;
};

/// Describes a message that has arrived and for which no receive is posted yet. Channel::probe()
/// returns it.
struct MessageInfo {
    Tag tag = 0;
    /// The length of the message in bytes.
    std::size_t length = 0;
    /// Channel::number() of the channel from which the message came.
    std::uint32_t channel = 0;
};

/// A message that mprobe() has taken, for Channel::imrecv().
struct MatchedMessage : MessageInfo {
    /// Identifies the message among those that mprobe() has taken.
    std::uint64_t number = 0;
};

} // namespace rdmabuf::transport
