// SPDX-License-Identifier: BSD-3-Clause
// This header defines how Engine starts and tests requests.
#pragma once

#include <rdmabuf/transport/detail/engine.hpp>

namespace rdmabuf::transport::detail {

inline int Engine::send(const Piece& piece, Tag tag, Request& request) noexcept {
    if (const int error = check(piece); error != 0) {
        return error;
    }
    return begin(Purpose::send, piece, request, [&](Operation& operation, std::uint32_t i) {
        operation.value = tag;
        operation.bytes = piece.length;
        operation.stage = Stage::queued;
        operations_.append(queued_, i);
        send_queued();
        move_data();
    });
}

inline int Engine::receive(const Piece& piece, Tag tag, Request& request) noexcept {
    if (broken_ != 0 && !peer_left_) {
        return broken_;
    }
    if (const int error = check_range(piece); error != 0) {
        return error;
    }
    if (piece.length > 0 &&
        !has(piece.memory->access, Access::local_write | Access::remote_write)) {
        return EACCES;
    }
    if (operations_.full()) {
        return EAGAIN;
    }
    // If the peer has closed its channel, only eager messages that have arrived can be received.
    const std::uint32_t slot = inbox_.take([&](const Header& header) {
        return header.value == tag &&
               (header.kind == Kind::eager || (header.kind == Kind::announce && broken_ == 0));
    });
    if (slot == Inbox::none && broken_ != 0) {
        return broken_;
    }
    return begin(Purpose::receive, piece, request, [&](Operation& operation, std::uint32_t i) {
        operation.value = tag;
        if (slot == Inbox::none) {
            operation.stage = Stage::posted;
            operations_.append(posted_, i);
            consider_offer(i);
        } else {
            take_message(i, slot, inbox_.header(slot));
        }
    });
}

inline int Engine::put(const Piece& piece, const RemoteMemory& remote, std::uint64_t offset,
                       const std::uint64_t* value, Request& request) noexcept {
    if (const int error = check_remote(piece, remote, offset, Access::remote_write); error != 0) {
        return error;
    }
    return begin(Purpose::put, piece, request, [&](Operation& operation, std::uint32_t i) {
        operation.notifies = value != nullptr;
        operation.value = value != nullptr ? *value : 0;
        move(operation, i, remote, offset);
    });
}

inline int Engine::get(const Piece& piece, const RemoteMemory& remote, std::uint64_t offset,
                       Request& request) noexcept {
    if (const int error = check_remote(piece, remote, offset, Access::remote_read); error != 0) {
        return error;
    }
    if (piece.length > 0 && !has(piece.memory->access, Access::local_write)) {
        return EACCES;
    }
    return begin(Purpose::get, piece, request, [&](Operation& operation, std::uint32_t i) {
        move(operation, i, remote, offset);
    });
}

inline int Engine::flush(const Piece& piece, Request& request) noexcept {
    if (const int error = check(piece); error != 0) {
        return error;
    }
    const bool needed = piece.length > 0 && !piece.memory->host;
    if (needed && !has(piece.memory->access, Access::remote_read)) {
        return EACCES;
    }
    if (needed && !std::all_of(rails_.begin(), rails_.end(),
                               [](const Rail& rail) { return rail.to_self.has_room(0); })) {
        return EAGAIN;
    }
    return begin(Purpose::flush, piece, request, [&](Operation& operation, std::uint32_t i) {
        operation.stage = Stage::moving;
        if (needed) {
            read_back(operation, i);
        }
        settle(i);
    });
}

inline bool Engine::notification(std::uint64_t& value) noexcept {
    progress();
    const std::uint32_t slot =
        inbox_.take([](const Header& header) { return header.kind == Kind::notify; });
    if (slot == Inbox::none) {
        return false;
    }
    value = inbox_.header(slot).value;
    free_message_slot(slot);
    return true;
}

inline int Engine::test(const Request& request, Outcome& outcome) noexcept {
    if (request.channel != number_ || request.index >= operations_.size()) {
        return EINVAL;
    }
    Operation& operation = operations_[request.index];
    if (operation.stage == Stage::idle || operation.generation != request.generation) {
        return ESTALE;
    }
    if (operation.stage != Stage::done) {
        progress();
    }
    if (operation.stage == Stage::done) {
        outcome = {.done = true,
                   .error = {operation.error, std::system_category()},
                   .bytes = static_cast<std::size_t>(operation.bytes)};
        operations_.give_back(request.index);
    }
    return 0;
}

inline int Engine::check_range(const Piece& piece) const noexcept {
    if (piece.length == 0) {
        return 0;
    }
    if (piece.memory == nullptr || piece.memory->endpoint != endpoint_) {
        return EINVAL;
    }
    return piece.memory->holds(piece.address, piece.length) ? 0 : ERANGE;
}

inline int Engine::check_remote(const Piece& piece, const RemoteMemory& remote,
                                std::uint64_t offset, Access access) const noexcept {
    if (const int error = check(piece); error != 0) {
        return error;
    }
    if (remote.table().rails < rails_.size()) {
        return EINVAL;
    }
    if (offset > remote.length() || piece.length > remote.length() - offset) {
        return ERANGE;
    }
    return has(remote.access(), access) ? 0 : EACCES;
}

inline void Engine::move(Operation& operation, std::uint32_t i, const RemoteMemory& remote,
                         std::uint64_t offset) noexcept {
    copy_used(remote.table(), operation.remote);
    operation.remote_address = remote.address() + offset;
    operation.remote_begin = 0;
    operation.bytes = operation.window = operation.length;
    operation.stage = Stage::moving;
    if (operation.window == 0) {
        settle(i);
        return;
    }
    operations_.append(movers_, i);
    move_data();
}

inline void Engine::copy_used(const RemoteTable& from, RemoteTable& to) const noexcept {
    to.chunks = from.chunks;
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
        std::copy_n(from.regions[rail].begin(), from.chunks, to.regions[rail].begin());
    }
}

inline void Engine::finish(std::uint32_t i, int error) noexcept {
    Operation& operation = operations_[i];
    operation.error = error;
    operation.stage = Stage::done;
    if (operation.slot != Inbox::none) {
        free_message_slot(std::exchange(operation.slot, Inbox::none));
    }
}

inline void Engine::settle(std::uint32_t i) noexcept {
    Operation& operation = operations_[i];
    if (operation.stage != Stage::moving || operation.pending > 0 ||
        operation.moved < operation.window) {
        return;
    }
    if (operation.purpose == Purpose::put && operation.notifies && !operation.told) {
        operation.stage = Stage::queued;
        operations_.append(queued_, i);
        send_queued();
    } else if (operation.purpose != Purpose::send ||
               (operation.told && operation.moved == operation.bytes)) {
        finish(i);
    } else if (!operation.told) {
        operation.stage = Stage::telling;
        operations_.append(telling_, i);
        send_control();
    } else {
        operation.stage = Stage::announced; // Waits for the CTS of the next part.
    }
}

inline void Engine::end_operations(int error, std::uint32_t culprit, int culprit_error) noexcept {
    queued_ = telling_ = movers_ = posted_ = {};
    to_offer_ = OperationTable::none;
    for (std::uint32_t i = 0; i < operations_.size(); ++i) {
        Operation& operation = operations_[i];
        if (operation.stage != Stage::idle && operation.stage != Stage::done) {
            operation.slot = Inbox::none;
            finish(i, i == culprit ? culprit_error : error);
        }
    }
}

} // namespace rdmabuf::transport::detail
