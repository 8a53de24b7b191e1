// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <new>

#include <rdmabuf/transport/detail/tag_matcher.hpp>

namespace rdmabuf::transport::detail {

UnexpectedMessage* UnexpectedMessage::make(BlockPool& pool, std::uint32_t stored) noexcept {
    void* const memory = pool.take(sizeof(UnexpectedMessage) + stored);
    if (memory == nullptr) {
        return nullptr;
    }
    auto* const message = ::new (memory) UnexpectedMessage;
    message->pool = &pool;
    message->stored = stored;
    return message;
}

void UnexpectedMessage::destroy(UnexpectedMessage* message) noexcept {
    BlockPool& pool = *message->pool;
    const std::size_t size = sizeof(UnexpectedMessage) + message->stored;
    message->~UnexpectedMessage();
    pool.give_back(message, size);
}

TagMatcher::~TagMatcher() {
    for (const Arrivals* const list : {&arrived_, &claimed_}) {
        while (UnexpectedMessage* const message = list->front()) {
            remove(*message);
            UnexpectedMessage::destroy(message);
        }
    }
}

ReceiveRequest* TagMatcher::find_receive(const ChannelState* channel, Tag tag) noexcept {
    ReceiveRequest* found = nullptr;
    for (ReceiveRequest& i : exact_[hash(channel, tag)]) {
        if (i.tag == tag && i.channel == channel) {
            found = &i;
            break;
        }
    }
    for (ReceiveRequest& i : wildcards_) {
        if (found != nullptr && found->sequence < i.sequence) {
            break;
        }
        if (accepts(i, channel, tag)) {
            return &i;
        }
    }
    return found;
}

bool TagMatcher::has_unadvertised(const ChannelState* channel, Tag tag) const noexcept {
    for (const ReceiveRequest& i : exact_[hash(channel, tag)]) {
        if (i.tag == tag && i.channel == channel && !i.advertised) {
            return true;
        }
    }
    // NOLINTNEXTLINE(readability-use-anyofallof): List has no iterator for algorithms
    for (const ReceiveRequest& i : wildcards_) {
        if (accepts(i, channel, tag)) {
            return true;
        }
    }
    return false;
}

void TagMatcher::add(UnexpectedMessage& message) noexcept {
    unexpected_[hash(message.channel, message.tag)].push_back(&message);
    messages_of(message.channel).push_back(&message);
    arrived_.push_back(&message);
}

void TagMatcher::remove(UnexpectedMessage& message) noexcept {
    if (message.claim != 0) {
        claimed_.remove(&message);
        return;
    }
    unexpected_[hash(message.channel, message.tag)].remove(&message);
    messages_of(message.channel).remove(&message);
    arrived_.remove(&message);
}

void TagMatcher::claim(UnexpectedMessage& message) noexcept {
    remove(message);
    message.claim = ++claims_;
    claimed_.push_back(&message);
}

UnexpectedMessage* TagMatcher::find_claimed(const ChannelState* channel,
                                            std::uint64_t number) noexcept {
    for (UnexpectedMessage& i : claimed_) {
        if (i.claim == number && i.channel == channel) {
            return &i;
        }
    }
    return nullptr;
}

UnexpectedMessage* TagMatcher::find_message(const ChannelState* channel, Tag tag,
                                            Tag mask) noexcept {
    if (arrived_.empty()) {
        return nullptr;
    }
    if (channel != nullptr && mask == full_mask) {
        for (UnexpectedMessage& i : unexpected_[hash(channel, tag)]) {
            if (i.tag == tag && i.channel == channel) {
                return &i;
            }
        }
        return nullptr;
    }
    if (channel != nullptr) {
        for (UnexpectedMessage& i : messages_of(channel)) {
            if (i.channel == channel && ((i.tag ^ tag) & mask) == 0) {
                return &i;
            }
        }
        return nullptr;
    }
    for (UnexpectedMessage& i : arrived_) {
        if (!is_held(i.channel) && ((i.tag ^ tag) & mask) == 0) {
            return &i;
        }
    }
    return nullptr;
}

bool TagMatcher::accepts(const ReceiveRequest& receive, const ChannelState* channel,
                         Tag tag) const noexcept {
    return (receive.channel == nullptr ? !is_held(channel) : receive.channel == channel) &&
           ((receive.tag ^ tag) & receive.mask) == 0;
}

} // namespace rdmabuf::transport::detail
