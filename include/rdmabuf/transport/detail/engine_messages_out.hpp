// SPDX-License-Identifier: BSD-3-Clause
// This header defines how Engine sends messages to the peer.
#pragma once

#include <rdmabuf/transport/detail/engine.hpp>

namespace rdmabuf::transport::detail {

inline bool Engine::send_message(Header header, std::span<const std::byte> body,
                                 const ibv_sge* data, std::uint32_t operation,
                                 std::uint32_t reserve) noexcept {
    Rail& rail = rails_[0];
    if (!rail.to_peer.has_room(reserve)) {
        return false;
    }
    header.taken_messages = messages_.taken();
    header.taken_control = control_.taken();
    const auto size = static_cast<std::uint32_t>(sizeof header + body.size());
    const bool in_line = data == nullptr && size <= options_.inline_data;
    if (!in_line && !rail.to_peer.is_completed(send_slot_used_[send_slot_])) {
        return false;
    }

    std::array<std::byte, max_inline> small; // NOLINT(*-member-init): filled below
    std::byte* const bytes = in_line ? small.data() : arena_.send_slot(send_slot_);
    std::memcpy(bytes, &header, sizeof header);
    if (!body.empty()) {
        std::memcpy(bytes + sizeof header, body.data(), body.size());
    }
    const std::array<ibv_sge, 2> entries = {ibv_sge{.addr = reinterpret_cast<std::uintptr_t>(bytes),
                                                    .length = size,
                                                    .lkey = rail.arena->lkey()},
                                            data != nullptr ? *data : ibv_sge{}};
    const std::uint32_t sequence = rail.to_peer.next();
    const bool posted = post(rail.to_peer, Work::remote, operation, [&](WorkOptions options) {
        if (in_line) {
            options.flags = options.flags | SendFlags::inline_data;
        }
        return rail.peer->post_send(std::span(entries).first(data != nullptr ? 2 : 1), options);
    });
    if (!posted) {
        return false;
    }
    if (!in_line) {
        send_slot_used_[send_slot_] = sequence;
        send_slot_ = (send_slot_ + 1) % Arena::send_slots;
    }
    messages_.told();
    control_.told();
    return true;
}

inline void Engine::send_queued() noexcept {
    while (!queued_.empty() && broken_ == 0 && messages_.available()) {
        const std::uint32_t i = queued_.front();
        if (!send_operation(operations_[i], i)) {
            return;
        }
    }
}

inline bool Engine::send_operation(Operation& operation, std::uint32_t i) noexcept {
    if (operation.purpose == Purpose::send) {
        const std::uint32_t offer = offers_.find(operation.value);
        if (offer != Offers::none && offers_.taken(offer)) {
            return false; // The previous message of the tag is not complete yet.
        }
        if (offer != Offers::none && take_offer(operation, i, offer)) {
            return true;
        }
    }
    Header header = {.kind = Kind::eager,
                     .from = operations_.name(i),
                     .length = operation.bytes,
                     .value = operation.value};
    if (operation.purpose == Purpose::put) {
        header.kind = Kind::notify;
    } else if (operation.bytes > eager_limit_) {
        header.kind = Kind::announce;
    }

    std::span<const std::byte> body;
    ibv_sge data{};
    const ibv_sge* gathered = nullptr;
    if (header.kind == Kind::eager && operation.bytes > 0) {
        if (operation.memory->host && operation.bytes <= Arena::copy_limit) {
            body = {reinterpret_cast<const std::byte*>(operation.address),
                    static_cast<std::size_t>(operation.bytes)};
        } else if (!gather(operation, data)) {
            header.kind = Kind::announce; // The data spans several chunks.
        } else {
            gathered = &data;
        }
    }
    if (!send_message(header, body, gathered, gathered != nullptr ? i : OperationTable::none,
                      reserved)) {
        return false;
    }
    messages_.sent();
    operations_.remove(queued_, i);
    if (header.kind == Kind::announce) {
        operation.stage = Stage::announced;
    } else if (header.kind == Kind::notify) {
        operation.stage = Stage::moving;
        operation.told = true;
        settle(i);
    } else if (gathered != nullptr) {
        operation.stage = Stage::moving;
        operation.told = true;
        operation.moved = operation.window = operation.bytes;
    } else {
        finish(i);
    }
    return true;
}

inline bool Engine::take_offer(Operation& operation, std::uint32_t i,
                               std::uint32_t number) noexcept {
    const Offers::Offer& offer = offers_[number];
    if (operation.bytes <= eager_limit_ || operation.bytes > offer.length) {
        offers_.remove(number); // The receive gets an eager message or an RTS.
        return false;
    }
    offers_.take(number);
    operation.offer = number;
    copy_used(offer.remote, operation.remote);
    operation.length_known = operation.bytes == offer.length;
    open_window(operation, offer.operation, operation.bytes);
    operations_.remove(queued_, i);
    operations_.append(movers_, i); // The caller calls move_data().
    return true;
}

inline void Engine::told(Operation& operation) noexcept {
    operation.told = true;
    if (operation.offer != Offers::none) {
        offers_.remove(std::exchange(operation.offer, Offers::none));
    }
}

inline bool Engine::gather(const Operation& operation, ibv_sge& data) noexcept {
    const std::uint64_t at = operation.memory->device_address(operation.address);
    const LocalChunk* chunk = rdmabuf::detail::find_chunk(operation.memory->rail(0), at);
    if (chunk == nullptr || operation.bytes > chunk->length - (at - chunk->address)) {
        return false;
    }
    data = {.addr = at, .length = static_cast<std::uint32_t>(operation.bytes), .lkey = chunk->lkey};
    return true;
}

inline void Engine::send_control() noexcept {
    while (!telling_.empty() && broken_ == 0 && control_.available()) {
        const std::uint32_t i = telling_.front();
        if (!send_control_of(operations_[i], i)) {
            return;
        }
    }
}

inline bool Engine::send_control_of(Operation& operation, std::uint32_t i) noexcept {
    std::array<GrantedChunk, max_chunks> chunks;
    std::span<const std::byte> body;
    Header header = {
        .operation = operation.peer, .from = operations_.name(i), .length = operation.bytes};
    switch (operation.stage) {
        case Stage::granting:
            header.kind = Kind::grant;
            body = grant(operation, operation.bytes - operation.moved, header, chunks);
            break;
        case Stage::refusing:
            header.kind = Kind::refuse;
            break;
        default:
            header.kind = Kind::wrote;
            break;
    }
    if (!send_message(header, body, nullptr, OperationTable::none, reserved)) {
        return false;
    }
    control_.sent();
    operations_.remove(telling_, i);
    if (operation.stage == Stage::granting) {
        operation.window = operation.moved + header.length;
        operation.stage = Stage::granted;
    } else if (operation.stage == Stage::refusing) {
        finish(i, EMSGSIZE);
    } else {
        told(operation);
        operation.stage = Stage::moving;
        settle(i);
    }
    return true;
}

inline std::span<const std::byte> Engine::grant(
    const Operation& operation, std::uint64_t length, Header& header,
    std::array<GrantedChunk, max_chunks>& chunks) const noexcept {
    RemoteTable table;
    header.length =
        Memory::fill(*operation.memory, table,
                     operation.memory->device_address(operation.address) + operation.moved, length);
    header.chunks = table.chunks;
    header.rails = static_cast<std::uint8_t>(table.rails);
    for (std::size_t c = 0; c < table.chunks; ++c) {
        chunks[c] = {.address = table.regions[0][c].address, .length = table.regions[0][c].length};
        for (std::size_t rail = 0; rail < table.rails; ++rail) {
            chunks[c].rkeys[rail] = table.regions[rail][c].rkey;
        }
    }
    return std::as_bytes(std::span(chunks)).first(table.chunks * sizeof(GrantedChunk));
}

inline void Engine::send_credits() noexcept {
    if (broken_ == 0 && (messages_.due() || control_.due())) {
        static_cast<void>(
            send_message({.kind = Kind::credit}, {}, nullptr, OperationTable::none, 0));
    }
}

inline void Engine::consider_offer(std::uint32_t i) noexcept {
    if (operations_[i].length <= eager_limit_) {
        return;
    }
    std::uint32_t first = posted_.front();
    while (operations_[first].value != operations_[i].value) {
        first = operations_.next(first);
    }
    if (first != i) {
        return; // The next message of the tag matches an earlier receive.
    }
    send_offer();
    if (broken_ == 0) {
        to_offer_ = i;
    }
}

inline void Engine::send_offer() noexcept {
    if (to_offer_ == OperationTable::none) {
        return;
    }
    const std::uint32_t i = std::exchange(to_offer_, OperationTable::none);
    Operation& operation = operations_[i];
    std::array<GrantedChunk, max_chunks> chunks;
    Header header = {.kind = Kind::offer,
                     .from = operations_.name(i),
                     .seen_messages = messages_seen_,
                     .value = operation.value};
    const auto body = grant(operation, operation.length, header, chunks);
    if (header.length == operation.length && control_.available() &&
        send_message(header, body, nullptr, OperationTable::none, reserved)) {
        control_.sent();
        operation.offered = true;
    }
}

} // namespace rdmabuf::transport::detail
