// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/loopback_copy.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Sends and receives short messages. The sender copies the data behind the header, or the device
/// reads the data from the memory of the request. The receiver copies the data from the receive
/// buffer to the memory of the receive.
class EagerProtocol {
  public:
    enum class Sent : std::uint8_t {
        /// The message cannot be sent now.
        no,
        /// The work request is posted and has not completed: the device may still read the buffer
        /// of the program.
        posted,
        /// The message was sent, and the memory of the request may be reused.
        completed,
    };

    EagerProtocol(SharedState& shared, RailSet& rails, ControlChannel& control,
                  std::uint32_t limit) noexcept
        : shared_(shared), rails_(rails), control_(control), limit_(limit) {
        entries_[0] = {.addr = reinterpret_cast<std::uintptr_t>(&header_),
                       .length = sizeof header_,
                       .lkey = 0};
        work_.opcode = IBV_WR_SEND;
        work_.sg_list = entries_.data();
    }
    EagerProtocol(const EagerProtocol&) = delete;
    EagerProtocol& operator=(const EagerProtocol&) = delete;
    ~EagerProtocol() = default;

    [[nodiscard]] std::uint32_t limit() const noexcept { return limit_; }
    /// Returns true if a message of this length may be sent as an eager message now. If the peer
    /// has no credits left for eager messages, the message is sent with an RTS instead.
    [[nodiscard]] bool fits(std::uint64_t length) const noexcept {
        return length <= limit_ &&
               control_.eager_credits.available(static_cast<std::uint32_t>(length));
    }
    /// Returns true if the data of a message is copied when the message is sent. The send then
    /// needs no SendRequest object.
    [[nodiscard]] static bool is_copied(const BufferRef& buffer) noexcept {
        return buffer.length <= BouncePool::copy_limit && buffer.is_host();
    }

    /// Sends a message for which is_copied() is true.
    [[nodiscard]] bool send_copied(const BufferRef& buffer, Tag tag) noexcept {
        const auto length = static_cast<std::uint32_t>(buffer.length);
        header_.value = tag;
        control_.add_credits(header_);
        if (rails_.fits_inline(sizeof header_ + length)) {
            entries_[1] = {.addr = buffer.address, .length = length, .lkey = 0};
            work_.num_sge = length > 0 ? 2 : 1;
            if (!rails_.send_inline(work_)) {
                return false;
            }
        } else if (!rails_.send(header_, {reinterpret_cast<const std::byte*>(buffer.address),
                                          std::size_t{length}})) {
            return false;
        }
        control_.credits_sent(Kind::eager);
        control_.eager_credits.sent(length);
        return true;
    }
    /// Sends a message whose data the device reads from the memory of the request.
    /// @return false if the message cannot be sent now, or if its memory consists of several
    ///         registered chunks
    [[nodiscard]] bool send_gathered(SendRequest& request, const ibv_sge& data) noexcept {
        Header header = {.kind = Kind::eager, .value = request.tag};
        control_.add_credits(header);
        if (!rails_.send_gathered(header, data, request)) {
            return false;
        }
        control_.credits_sent(Kind::eager);
        control_.eager_credits.sent(data.length);
        return true;
    }
    /// Sets @p data to the address, length and lkey of the message.
    /// @return false if the memory of the message consists of several registered chunks
    [[nodiscard]] static bool gather(const BufferRef& buffer, ibv_sge& data) noexcept {
        const std::uint64_t at = buffer.device_address();
        const LocalChunk* chunk = rdmabuf::detail::find_chunk(buffer.memory->rail(0), at);
        if (chunk == nullptr || buffer.length > chunk->length - (at - chunk->address)) {
            return false;
        }
        data = {
            .addr = at, .length = static_cast<std::uint32_t>(buffer.length), .lkey = chunk->lkey};
        return true;
    }

    /// Copies a received message to the memory of its receive and ends the receive. If the message
    /// is longer than the memory, the receive ends with EMSGSIZE.
    /// @return false if the CPU cannot write to the memory; LoopbackCopy must then copy the message
    [[nodiscard]] bool deliver(ReceiveRequest& receive, const std::byte* data,
                               std::uint64_t length) noexcept {
        receive.bytes = length;
        if (length > receive.buffer.length) {
            shared_.complete(receive, EMSGSIZE);
            return true;
        }
        if (length > 0) {
            if (!receive.buffer.memory->host) {
                return false;
            }
            std::memcpy(reinterpret_cast<void*>(receive.buffer.address), data,
                        static_cast<std::size_t>(length));
        }
        shared_.complete(receive);
        return true;
    }

  private:
    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
    std::uint32_t limit_;
    /// A prepared work request, which sends header_ and the data of a message as inline data.
    Header header_ = {.kind = Kind::eager};
    std::array<ibv_sge, 2> entries_{};
    ibv_send_wr work_{};
};

} // namespace rdmabuf::transport::detail
