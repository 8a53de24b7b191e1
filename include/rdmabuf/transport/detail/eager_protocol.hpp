// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/loopback_copy.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Sends and receives short messages. The sender either copies the data behind the header, or lets
/// the device read the data from the memory of the request. The receiver copies the data from a
/// receive buffer to the memory of the matching receive request.
class RDMABUF_EXPORT EagerProtocol {
  public:
    enum class Sent : std::uint8_t {
        /// The message cannot be sent now.
        no,
        /// The send has started, but has not completed: a device may still read the buffer of the
        /// program.
        posted,
        /// The message was sent, and the memory of the request may be reused.
        completed,
    };

    EagerProtocol(SharedState& shared, RailSet& rails, ControlChannel& control,
                  std::uint32_t limit) noexcept
        : shared_(shared),
          rails_(rails),
          control_(control),
          limit_(limit),
          short_limit_(
              std::min({BouncePool::copy_limit, limit,
                        rails.inline_data() - std::min(rails.inline_data(), header_size)})) {}
    EagerProtocol(const EagerProtocol&) = delete;
    EagerProtocol& operator=(const EagerProtocol&) = delete;
    ~EagerProtocol() = default;

    [[nodiscard]] std::uint32_t limit() const noexcept { return limit_; }
    /// Returns true if a message of this length may be sent as an eager message now: it is not
    /// longer than limit(), and this end has credits for it.
    [[nodiscard]] bool fits(std::uint64_t length) const noexcept;
    /// Returns true if a message of this length is written to a receive that the peer has
    /// advertised, and if receives of this length are advertised.
    [[nodiscard]] bool uses_advertisements(std::uint64_t length) const noexcept {
        return length > limit_ || limit_ == 0;
    }
    /// Returns true if the data of an eager message is copied when the message is sent.
    [[nodiscard]] static bool is_copied(const BufferRef& buffer) noexcept {
        return buffer.length <= BouncePool::copy_limit && buffer.is_host();
    }

    /// A prepared work request, which sends a header and the data of a message as inline data.
    class ShortMessage {
      public:
        ShortMessage() noexcept {
            work_.wr_id = WorkId{.work = Work::remote}.encode();
            work_.opcode = IBV_WR_SEND;
            work_.send_flags = IBV_SEND_INLINE;
            work_.sg_list = entries_.data();
            work_.num_sge = static_cast<int>(entries_.size());
        }
        ShortMessage(const ShortMessage&) = delete;
        ShortMessage& operator=(const ShortMessage&) = delete;
        ~ShortMessage() = default;

        /// Sets the tag and the data of the message, and returns its work request.
        /// @param sequence  the sequence number of the work request: SendQueue::next()
        [[nodiscard]] ibv_send_wr& set(const ControlChannel& control, std::uint32_t sequence,
                                       Tag tag, std::uintptr_t address,
                                       std::uint32_t length) noexcept {
            // The sequence number is the lower half of the wr_id: see WorkId.
            std::memcpy(&work_.wr_id, &sequence, sizeof sequence);
            header_.value = tag;
            control.add_eager_credits(header_);
            entries_[1].addr = address;
            entries_[1].length = length;
            return work_;
        }

      private:
        Header header_ = {.kind = Kind::eager};
        std::array<ibv_sge, 2> entries_ = {
            ibv_sge{.addr = reinterpret_cast<std::uintptr_t>(&header_),
                    .length = sizeof header_,
                    .lkey = 0}};
        ibv_send_wr work_{};
    };
    [[nodiscard]] ShortMessage& short_message() noexcept { return short_message_; }
    /// Returns true if a message of this length can be sent as a ShortMessage. Returns false for an
    /// empty message, because the second scatter-gather entry, which refers to the data, must not
    /// have 0 bytes.
    [[nodiscard]] bool is_short(std::uint64_t length) const noexcept {
        return length - 1 < short_limit_;
    }
    /// Returns how many messages this end may send now, if is_short() is true for each of them.
    [[nodiscard]] std::uint32_t short_messages() const noexcept {
        return std::min(control_.window.left(), control_.eager_credits.messages(short_limit_));
    }
    /// Copies a message of up to BouncePool::copy_limit bytes and sends the copy, so that the
    /// caller can reuse the memory of the message at once.
    /// @return false if the message cannot be sent now
    [[nodiscard]] bool send_copied(std::span<const std::byte> message, Tag tag) noexcept;
    /// Sends a message whose data the device reads from the memory of the request.
    /// @return false if the message cannot be sent now
    [[nodiscard]] bool send_gathered(SendRequest& request, const ibv_sge& data) noexcept;
    /// Sets @p data to the address, the length and the lkey of @p buffer.
    /// @return false if the buffer is not inside one registered chunk
    [[nodiscard]] static bool gather(const BufferRef& buffer, ibv_sge& data) noexcept;

    /// Copies a received message to the memory of its receive request and ends the request. If the
    /// message is longer than this memory, the request ends with EMSGSIZE.
    /// @return false if the transport must not access the memory with the CPU (MemoryState::host);
    ///         LoopbackCopy must then copy the message
    [[nodiscard]] bool deliver(ReceiveRequest& receive, const std::byte* data,
                               std::uint64_t length) noexcept;
    /// Copies a received message to the memory of a receive for which RequestFlags::simple is true,
    /// and ends the receive.
    /// @param length  not larger than the length of this memory
    static void deliver_simple(ReceiveRequest& receive, const std::byte* data,
                               std::size_t length) noexcept {
        receive.bytes = length;
        copy(reinterpret_cast<void*>(receive.buffer.address), data, length);
        receive.done = receive.delivered = true;
    }

  private:
    static constexpr std::uint32_t header_size = sizeof(Header);

    /// Counts a message that was sent, and the credits that its header has returned.
    void sent(std::uint32_t length) noexcept;
    /// Copies a message. A message of 8 to 16 bytes is copied without a function call.
    static void copy(void* to, const std::byte* from, std::size_t length) noexcept {
        constexpr std::size_t half = 8;
        if (length - half > half) {
            std::memcpy(to, from, length);
            return;
        }
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        std::memcpy(&first, from, half);
        std::memcpy(&last, from + length - half, half);
        std::memcpy(to, &first, half);
        std::memcpy(static_cast<std::byte*>(to) + length - half, &last, half);
    }

    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
    std::uint32_t limit_;
    /// Maximum length in bytes of a message that is sent as a ShortMessage.
    std::uint32_t short_limit_;
    ShortMessage short_message_;
};

} // namespace rdmabuf::transport::detail
