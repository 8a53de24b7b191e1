// SPDX-License-Identifier: BSD-3-Clause
// This header defines the data transfers of Engine: RDMA writes, RDMA reads and flush reads.
#pragma once

#include <rdmabuf/transport/detail/engine.hpp>

namespace rdmabuf::transport::detail {

inline void Engine::read_back(Operation& operation, std::uint32_t i) noexcept {
    for (std::size_t r = 0; r < rails_.size(); ++r) {
        Rail& rail = rails_[r];
        const auto chunks = operation.memory->rail(r);
        const std::uint64_t at = operation.memory->device_address(operation.address);
        const LocalChunk* chunk = rdmabuf::detail::find_chunk(chunks, at);
        const ibv_sge scratch = {.addr = reinterpret_cast<std::uintptr_t>(arena_.scratch()),
                                 .length = 1,
                                 .lkey = rail.arena->lkey()};
        static_cast<void>(post(rail.to_self, Work::local, i, [&](const WorkOptions& options) {
            return rail.self->post_read(scratch, {.address = at, .rkey = chunk->rkey}, options);
        }));
    }
}

inline void Engine::move_data() noexcept {
    for (std::uint32_t i = movers_.front(); i != OperationTable::none;) {
        const std::uint32_t next = operations_.next(i);
        Operation& operation = operations_[i];
        while (operation.moved < operation.window && move_piece(operation, i)) {
        }
        if (broken_ != 0 && !peer_left_) {
            return; // fail() has emptied the lists.
        }
        if (operation.moved == operation.window) {
            operations_.remove(movers_, i);
            moved_all(operation, i);
        }
        i = next;
    }
}

inline void Engine::moved_all(Operation& operation, std::uint32_t i) noexcept {
    if (operation.told || rails_.size() > 1) {
        return;
    }
    if (operation.purpose == Purpose::send) {
        operation.stage = Stage::telling;
        operations_.append(telling_, i);
        send_control();
    } else if (operation.purpose == Purpose::put && operation.notifies) {
        operation.stage = Stage::queued;
        operations_.append(queued_, i);
        send_queued();
    }
}

inline bool Engine::move_piece(Operation& operation, std::uint32_t i) noexcept {
    const bool landing = operation.purpose == Purpose::receive;
    const std::size_t r = landing ? 0 : operation.rail;
    Rail& rail = rails_[r];
    SendQueue& queue = landing ? rail.to_self : rail.to_peer;
    if (!queue.has_room(reserved)) {
        return false;
    }

    TransferPiece piece;
    const std::uint64_t left = operation.window - operation.moved;
    const Transfer transfer = {
        .local_address = operation.memory->device_address(operation.address) + operation.moved,
        .remote_address = operation.remote_address + (operation.moved - operation.remote_begin),
        .length = landing ? left : std::min(left, stripe(operation))};
    TransferSplitter splitter(operation.memory->rail(r), operation.remote.rail(r), transfer,
                              max_message_);
    if (!splitter.next(piece)) {
        fail(ECONNABORTED, i, EFAULT);
        return false;
    }

    const bool last = operation.moved + piece.local.length == operation.window;
    const bool tell = operation.purpose == Purpose::send && operation.length_known && last &&
                      rails_.size() == 1 && control_.available();
    const bool posted =
        post(queue, landing ? Work::local : Work::remote, i, [&](const WorkOptions& options) {
            if (landing) {
                return rail.self->post_read(piece.local, piece.remote, options);
            }
            if (operation.purpose == Purpose::get) {
                return rail.peer->post_read(piece.local, piece.remote, options);
            }
            return tell ? rail.peer->post_write_imm(piece.local, piece.remote, operation.peer,
                                                    options)
                        : rail.peer->post_write(piece.local, piece.remote, options);
        });
    if (!posted) {
        return false;
    }
    if (tell) {
        control_.sent();
        told(operation);
    }
    operation.moved += piece.local.length;
    operation.rail = static_cast<std::uint32_t>((r + 1) % rails_.size());
    return true;
}

inline std::uint64_t Engine::stripe(const Operation& operation) const noexcept {
    if (rails_.size() == 1) {
        return max_message_;
    }
    constexpr std::uint64_t page = 4096;
    const std::uint64_t share = operation.bytes / rails_.size() + page;
    return std::max<std::uint64_t>(options_.stripe, share / page * page);
}

inline void Engine::land(Operation& operation, std::uint32_t i) noexcept {
    const MemoryRegion& arena = *rails_[0].arena;
    operation.remote.chunks = 1;
    operation.remote.regions[0][0] = arena.remote();
    operation.remote_address = reinterpret_cast<std::uintptr_t>(inbox_.body(operation.slot));
    operation.remote_begin = 0;
    operation.window = operation.bytes;
    operation.stage = Stage::moving;
    operations_.append(movers_, i);
    move_data();
}

} // namespace rdmabuf::transport::detail
