// SPDX-License-Identifier: BSD-3-Clause
// This header defines how Engine processes the messages that it receives from the peer.
#pragma once

#include <rdmabuf/transport/detail/engine.hpp>

namespace rdmabuf::transport::detail {

inline void Engine::post_slots(std::span<const std::uint32_t> slots) noexcept {
    Rail& rail = rails_[0];
    RecvList<Refill::capacity> list;
    std::array<ibv_sge, Refill::capacity> entries; // NOLINT(*-member-init): filled below
    for (const std::uint32_t slot : slots) {
        ibv_sge& entry = entries[list.size()];
        entry = {.addr = reinterpret_cast<std::uintptr_t>(arena_.receive_slot(slot)),
                 .length = arena_.receive_size(),
                 .lkey = rail.arena->lkey()};
        list.recv({&entry, 1}, WorkId{.work = Work::receive, .number = slot}.encode());
    }
    ibv_recv_wr* failed = nullptr;
    if (const Status status = rail.peer->post(list, failed); !status) {
        fail(EIO);
    }
}

inline void Engine::refill() noexcept {
    if (refill_.empty() || broken_ != 0) {
        return;
    }
    post_slots(refill_.slots());
    const auto [messages, control] = refill_.clear();
    messages_.took(messages);
    control_.took(control);
}

inline void Engine::free_message_slot(std::uint32_t slot) noexcept {
    if (broken_ == 0) {
        refill_.add_message(slot);
        if (refill_.full()) {
            refill();
        }
    }
}

inline void Engine::free_control_slot(std::uint32_t slot) noexcept {
    if (broken_ == 0) {
        refill_.add_control(slot);
        if (refill_.full()) {
            refill();
        }
    }
}

inline void Engine::arrived(std::uint32_t slot, const WorkCompletion& completion) noexcept {
    if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        written(be32toh(completion.imm_data), nullptr);
        free_control_slot(slot);
        return;
    }
    const Header header = inbox_.header(slot);
    const std::size_t size = completion.byte_len;
    if (size < sizeof header || !messages_.peer_took(header.taken_messages) ||
        !control_.peer_took(header.taken_control)) {
        fail(EPROTO);
        return;
    }
    const std::size_t body = size - sizeof header;
    switch (header.kind) {
        case Kind::eager:
            ++messages_seen_;
            body == header.length ? message(slot, header) : fail(EPROTO);
            return;
        case Kind::announce:
            ++messages_seen_;
            message(slot, header);
            return;
        case Kind::notify:
            ++messages_seen_;
            inbox_.hold(slot);
            return;
        case Kind::grant:
            granted(header, {inbox_.body(slot), body});
            break;
        case Kind::wrote:
            written(header.operation, &header.length);
            break;
        case Kind::refuse:
            refused(header.operation);
            break;
        case Kind::offer:
            offered(header, {inbox_.body(slot), body});
            break;
        case Kind::credit:
            post_slots({&slot, 1}); // Credit messages use no credits.
            return;
        default:
            fail(EPROTO);
            return;
    }
    free_control_slot(slot);
}

inline void Engine::message(std::uint32_t slot, const Header& header) noexcept {
    for (std::uint32_t i = posted_.front(); i != OperationTable::none; i = operations_.next(i)) {
        if (operations_[i].value == header.value) {
            operations_.remove(posted_, i);
            take_message(i, slot, header);
            return;
        }
    }
    inbox_.hold(slot);
}

inline void Engine::take_message(std::uint32_t i, std::uint32_t slot,
                                 const Header& header) noexcept {
    Operation& operation = operations_[i];
    operation.bytes = header.length;
    operation.peer = header.from;
    if (to_offer_ == i) {
        to_offer_ = OperationTable::none;
    }
    if (header.kind == Kind::announce) {
        free_message_slot(slot);
        operation.stage = header.length > operation.length ? Stage::refusing : Stage::granting;
        operations_.append(telling_, i);
        send_control();
        return;
    }
    operation.slot = slot;
    if (header.length > operation.length) {
        finish(i, EMSGSIZE);
    } else if (header.length == 0 || operation.memory->host) {
        if (header.length > 0) {
            std::memcpy(reinterpret_cast<void*>(operation.address), inbox_.body(slot),
                        static_cast<std::size_t>(header.length));
        }
        finish(i);
    } else {
        land(operation, i);
    }
}

inline bool Engine::expects_grant(const Operation& operation) noexcept {
    // The peer sends the CTS (grant) for the next part after it has received the FIN of the
    // previous part. This CTS may arrive before the completions of the RDMA writes of the previous
    // part, because ACKs and messages of the peer have no common order.
    return operation.stage == Stage::announced ||
           (operation.stage == Stage::moving && operation.told &&
            operation.moved == operation.window);
}

inline void Engine::granted(const Header& header, std::span<const std::byte> body) noexcept {
    const std::uint32_t i = operations_.named(header.operation);
    if (i == OperationTable::none || operations_[i].purpose != Purpose::send ||
        !expects_grant(operations_[i]) || !read_chunks(header, body, operations_[i].remote) ||
        header.length > operations_[i].bytes - operations_[i].moved) {
        fail(EPROTO);
        return;
    }
    Operation& operation = operations_[i];
    operation.told = false;
    open_window(operation, header.from, header.length);
    operations_.append(movers_, i);
}

inline void Engine::offered(const Header& header, std::span<const std::byte> body) noexcept {
    if (header.seen_messages != messages_.all_sent()) {
        return; // A message in flight may match the advertised receive.
    }
    if (offers_.find(header.value) != Offers::none) {
        fail(EPROTO);
        return;
    }
    Offers::Offer* const offer = offers_.add(header.value);
    if (offer == nullptr) {
        return;
    }
    if (!read_chunks(header, body, offer->remote)) {
        fail(EPROTO);
        return;
    }
    offer->operation = header.from;
    offer->length = header.length;
}

inline bool Engine::read_chunks(const Header& header, std::span<const std::byte> body,
                                RemoteTable& table) const noexcept {
    if (header.chunks > max_chunks || header.rails < rails_.size() || header.rails > max_rails ||
        body.size() != header.chunks * sizeof(GrantedChunk)) {
        return false;
    }
    table.chunks = header.chunks;
    std::uint64_t total = 0;
    for (std::size_t c = 0; c < header.chunks; ++c) {
        GrantedChunk chunk;
        std::memcpy(&chunk, body.data() + c * sizeof chunk, sizeof chunk);
        if (chunk.length > header.length - total) {
            return false;
        }
        for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
            table.regions[rail][c] = {
                .address = chunk.address, .length = chunk.length, .rkey = chunk.rkeys[rail]};
        }
        total += chunk.length;
    }
    return total == header.length && total > 0;
}

inline void Engine::open_window(Operation& operation, std::uint32_t peer,
                                std::uint64_t length) noexcept {
    operation.peer = peer;
    operation.remote_address = operation.remote.regions[0][0].address;
    operation.remote_begin = operation.moved;
    operation.window = operation.moved + length;
    operation.stage = Stage::moving;
}

inline void Engine::written(std::uint32_t name, const std::uint64_t* length) noexcept {
    const std::uint32_t i = operations_.named(name);
    if (i == OperationTable::none || operations_[i].purpose != Purpose::receive) {
        fail(EPROTO);
        return;
    }
    Operation& operation = operations_[i];
    if (operation.stage == Stage::posted && operation.offered) {
        if (length != nullptr && *length > operation.length) {
            fail(EPROTO);
            return;
        }
        operation.bytes = length != nullptr ? *length : operation.length;
        operations_.remove(posted_, i);
        finish(i);
        return;
    }
    if (operation.stage != Stage::granted) {
        fail(EPROTO);
        return;
    }
    operation.moved = operation.window;
    if (operation.moved == operation.bytes) {
        finish(i);
        return;
    }
    operation.stage = Stage::granting;
    operations_.append(telling_, i);
}

inline void Engine::refused(std::uint32_t name) noexcept {
    const std::uint32_t i = operations_.named(name);
    if (i == OperationTable::none || operations_[i].purpose != Purpose::send ||
        operations_[i].stage != Stage::announced) {
        fail(EPROTO);
        return;
    }
    finish(i, EMSGSIZE);
}

} // namespace rdmabuf::transport::detail
