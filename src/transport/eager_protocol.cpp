// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/transport/detail/eager_protocol.hpp>

namespace rdmabuf::transport::detail {

bool EagerProtocol::fits(std::uint64_t length) const noexcept {
    return length <= limit_ && control_.eager_credits.available(static_cast<std::uint32_t>(length));
}

bool EagerProtocol::send_copied(std::span<const std::byte> message, Tag tag) noexcept {
    Header header = {.kind = Kind::eager, .value = tag};
    control_.add_credits(header);
    if (!rails_.send(header, message)) {
        return false;
    }
    sent(static_cast<std::uint32_t>(message.size()));
    return true;
}

bool EagerProtocol::send_gathered(SendRequest& request, const ibv_sge& data) noexcept {
    Header header = {.kind = Kind::eager, .value = request.tag};
    control_.add_credits(header);
    if (!rails_.send_gathered(header, data, request)) {
        return false;
    }
    sent(data.length);
    return true;
}

bool EagerProtocol::gather(const BufferRef& buffer, ibv_sge& data) noexcept {
    const std::uint64_t at = buffer.device_address();
    const LocalChunk* chunk = rdmabuf::detail::find_chunk(buffer.memory->rail(0), at);
    if (chunk == nullptr || buffer.length > chunk->length - (at - chunk->address)) {
        return false;
    }
    data = {.addr = at, .length = static_cast<std::uint32_t>(buffer.length), .lkey = chunk->lkey};
    return true;
}

bool EagerProtocol::deliver(ReceiveRequest& receive, const std::byte* data,
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
        copy(reinterpret_cast<void*>(receive.buffer.address), data,
             static_cast<std::size_t>(length));
    }
    shared_.complete(receive);
    return true;
}

void EagerProtocol::sent(std::uint32_t length) noexcept {
    rails_.fast.sends = 0; // The limit assumes messages of at most short_limit_ bytes.
    control_.credits_sent(Kind::eager);
    control_.eager_credits.sent(length);
}

} // namespace rdmabuf::transport::detail
