// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/block_pool.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/transport/detail/request_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// A message that arrived before a matching receive was posted. The data of the message, or the
/// body of its RTS, is stored behind this object.
struct RDMABUF_EXPORT UnexpectedMessage {
    /// The pool that has allocated the memory of the message.
    BlockPool* pool = nullptr;
    ChannelState* channel = nullptr;
    Tag tag = 0;
    /// The length of the message in bytes.
    std::uint64_t length = 0;
    /// The number of bytes that are stored behind this object.
    std::uint32_t stored = 0;
    Kind kind{};
    /// The number that TagMatcher::claim() has given to the message; 0 if it is not claimed.
    std::uint64_t claim = 0;
    /// The links of an unclaimed message in a list of TagMatcher::unexpected_: the messages whose
    /// channel and tag have the same hash value.
    Link<UnexpectedMessage> same_hash{};
    /// The links of an unclaimed message in a list of TagMatcher::of_channels_: the messages whose
    /// channels have the same hash value.
    Link<UnexpectedMessage> same_channel{};
    /// The links of the message in TagMatcher::arrived_, or in TagMatcher::claimed_ if it is
    /// claimed.
    Link<UnexpectedMessage> arrival{};

    [[nodiscard]] std::span<std::byte> body() noexcept {
        return {reinterpret_cast<std::byte*>(this + 1), stored};
    }

    /// Allocates a message with memory for @p stored bytes behind the object.
    /// @return the message; nullptr if memory is exhausted
    [[nodiscard]] static UnexpectedMessage* make(BlockPool& pool, std::uint32_t stored) noexcept;
    static void destroy(UnexpectedMessage* message) noexcept;
};

// The documentation of EndpointOptions::unexpected_limit states 96 bytes for this object.
static_assert(sizeof(UnexpectedMessage) <= 96);

/// Matches messages with receives, for all channels of an endpoint. An arriving message matches the
/// first posted receive that accepts it. A new receive matches the first stored message that it
/// accepts. Receives for one channel and one tag are found by a hash table. All other receives (any
/// channel, or a mask) are in a list in the order in which they were posted.
class RDMABUF_EXPORT TagMatcher {
  public:
    TagMatcher() = default;
    TagMatcher(const TagMatcher&) = delete;
    TagMatcher& operator=(const TagMatcher&) = delete;
    ~TagMatcher();

    // Posted receives

    void post(ReceiveRequest& receive) noexcept {
        post(receive, receive.channel, receive.tag, receive.mask);
    }
    /// Posts a receive. The other parameters must be equal to the members of @p receive with the
    /// same names.
    void post(ReceiveRequest& receive, const ChannelState* channel, Tag tag, Tag mask) noexcept {
        if (!is_exact(channel, mask)) {
            ++wildcards_posted_;
        }
        receive.sequence = wildcards_posted_;
        list_of(channel, tag, mask).push_back(&receive);
    }
    void remove(ReceiveRequest& receive) noexcept {
        list_of(receive.channel, receive.tag, receive.mask).remove(&receive);
    }
    /// Returns the first posted receive that accepts a message of this channel with this tag;
    /// nullptr if no receive accepts it.
    [[nodiscard]] ReceiveRequest* find_receive(const ChannelState* channel, Tag tag) noexcept;
    /// Removes and returns the first posted receive that accepts a message of this channel with
    /// this tag; nullptr if there is none. Sets ReceiveRequest::tag to the tag of the message.
    [[nodiscard, gnu::always_inline]] ReceiveRequest* take_receive(const ChannelState* channel,
                                                                   Tag tag) noexcept {
        if (!wildcards_.empty()) [[unlikely]] {
            ReceiveRequest* const found = find_receive(channel, tag);
            if (found != nullptr) {
                remove(*found);
                found->tag = tag;
            }
            return found;
        }
        Receives& list = exact_[hash(channel, tag)];
        ReceiveRequest* found = list.front();
        if (found == nullptr) [[unlikely]] {
            return nullptr;
        }
        if (found->tag == tag && found->channel == channel) [[likely]] {
            list.remove(found);
            return found;
        }
        do {
            found = Receives::next(found);
            if (found == nullptr) {
                return nullptr;
            }
        } while (found->tag != tag || found->channel != channel);
        list.remove(found);
        return found;
    }
    /// Returns true if a posted receive that was not advertised accepts messages of this channel
    /// with this tag. In this case, a later receive must not be advertised, because the next
    /// message matches the earlier receive.
    [[nodiscard]] bool has_unadvertised(const ChannelState* channel, Tag tag) const noexcept;

    // Unexpected messages

    /// Adds a message that no posted receive accepts. The TagMatcher owns the message until
    /// remove().
    void add(UnexpectedMessage& message) noexcept;
    /// Returns true if an unclaimed message is stored.
    [[nodiscard]] bool has_messages() const noexcept { return !arrived_.empty(); }
    /// Removes a message, claimed or not. The caller then owns the message.
    void remove(UnexpectedMessage& message) noexcept;
    /// Hides a stored message from has_messages(), find_message() and for_each_message().
    void claim(UnexpectedMessage& message) noexcept;
    /// Returns the claimed message of this channel with this UnexpectedMessage::claim; nullptr if
    /// there is none.
    [[nodiscard]] UnexpectedMessage* find_claimed(const ChannelState* channel,
                                                  std::uint64_t number) noexcept;
    /// Until release(), hides the messages of a channel from receives that accept any channel,
    /// because the program does not know the channel yet.
    /// @throws std::bad_alloc
    void hold(const ChannelState* channel) { held_.push_back(channel); }
    void release(const ChannelState* channel) noexcept { std::erase(held_, channel); }
    [[nodiscard]] bool is_held(const ChannelState* channel) const noexcept {
        return std::ranges::find(held_, channel) != held_.end();
    }
    /// Returns the first unclaimed message that a receive with these parameters accepts; nullptr if
    /// there is none.
    /// @param channel  nullptr for messages of any channel
    [[nodiscard]] UnexpectedMessage* find_message(const ChannelState* channel, Tag tag,
                                                  Tag mask) noexcept;
    /// Calls @p visit for each unclaimed message of a channel, in the order of arrival. @p visit
    /// may remove this message.
    template <class Visit>
    void for_each_message(const ChannelState* channel, const Visit& visit) noexcept {
        for_each_message(messages_of(channel), channel, visit);
    }
    /// Removes and destroys the stored messages of a channel, claimed or not, for which @p unwanted
    /// returns true.
    template <class Unwanted>
    void drop(const ChannelState* channel, const Unwanted& unwanted) noexcept {
        const auto drop_unwanted = [&](UnexpectedMessage& message) {
            if (unwanted(message)) {
                remove(message);
                UnexpectedMessage::destroy(&message);
            }
        };
        for_each_message(channel, drop_unwanted);
        for_each_message(claimed_, channel, drop_unwanted);
    }

  private:
    using Receives = List<ReceiveRequest, &ReceiveRequest::link>;
    using SameHash = List<UnexpectedMessage, &UnexpectedMessage::same_hash>;
    using SameChannel = List<UnexpectedMessage, &UnexpectedMessage::same_channel>;
    using Arrivals = List<UnexpectedMessage, &UnexpectedMessage::arrival>;

    template <class Messages, class Visit>
    static void for_each_message(const Messages& list, const ChannelState* channel,
                                 const Visit& visit) noexcept {
        for (UnexpectedMessage& message : list) {
            if (message.channel == channel) {
                visit(message);
            }
        }
    }

    static constexpr std::size_t hash_bits = 8;
    static constexpr std::size_t buckets = std::size_t{1} << hash_bits;

    [[nodiscard]] static std::size_t hash(const ChannelState* channel, Tag tag) noexcept {
        const std::uint64_t key = tag ^ reinterpret_cast<std::uintptr_t>(channel);
        return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15U >> (64 - hash_bits));
    }
    [[nodiscard]] static bool is_exact(const ChannelState* channel, Tag mask) noexcept {
        return channel != nullptr && mask == full_mask;
    }
    [[nodiscard]] bool accepts(const ReceiveRequest& receive, const ChannelState* channel,
                               Tag tag) const noexcept;
    [[nodiscard]] Receives& list_of(const ChannelState* channel, Tag tag, Tag mask) noexcept {
        return is_exact(channel, mask) ? exact_[hash(channel, tag)] : wildcards_;
    }

    /// Returns the hash bucket with the unclaimed messages of a channel, in the order of arrival.
    /// Channels can share a bucket, so the caller must check the channel of each message.
    [[nodiscard]] SameChannel& messages_of(const ChannelState* channel) noexcept {
        return of_channels_[hash(channel, 0)];
    }

    std::array<Receives, buckets> exact_{};
    Receives wildcards_;
    std::uint64_t wildcards_posted_ = 0;
    std::array<SameHash, buckets> unexpected_{};
    std::array<SameChannel, buckets> of_channels_{};
    Arrivals arrived_;
    Arrivals claimed_;
    std::uint64_t claims_ = 0;
    std::vector<const ChannelState*> held_;
};

} // namespace rdmabuf::transport::detail
