// SPDX-License-Identifier: BSD-3-Clause
// This header defines how Engine makes progress and how a channel fails.
#pragma once

#include <sys/socket.h>

#include <cerrno>

#include <rdmabuf/transport/detail/engine.hpp>

namespace rdmabuf::transport::detail {

inline void Engine::progress() noexcept {
    if (broken_ == 0) {
        if (!poll()) {
            refill();
        }
        send_control();
        send_queued();
        move_data();
        send_offer();
        send_credits();
    } else if (peer_left_) {
        poll();
        move_data();
    }
    if (++calls_ % calls_between_looks == 0) {
        look_around(now_ns());
    }
}

/// Checks, without waiting, whether the peer has closed its socket.
/// @return 0 if the peer has not closed its socket; ECONNRESET if the peer has closed it; EPROTO if
///         the peer has sent data, which is invalid after the handshake
[[nodiscard]] inline int check_peer_socket(int socket) noexcept {
    std::byte byte{};
    const ssize_t received = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (received > 0) {
        return EPROTO;
    }
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return 0;
    }
    return ECONNRESET;
}

inline void Engine::drain() noexcept {
    const std::int64_t end = now_ns() + ns(options_.linger);
    while (broken_ == 0 && now_ns() < end) {
        progress();
        Rail& first = rails_[0];
        if (!first.to_peer.all_signaled() && first.to_peer.has_room(0)) {
            probe();
        }
        if (queued_.empty() && std::all_of(rails_.begin(), rails_.end(),
                                           [](const Rail& rail) { return rail.to_peer.idle(); })) {
            return;
        }
        // After the peer has closed its channel, no more acknowledgements arrive: stop waiting.
        if (const int error = broken_ == 0 ? check_peer_socket(socket_.get()) : 0; error != 0) {
            left(error);
        }
    }
}

inline void Engine::fail(int error, std::uint32_t culprit, int culprit_error) noexcept {
    if (broken_ != 0) {
        return;
    }
    broken_ = error;
    stop_devices();
    end_operations(error, culprit, culprit_error);
}

inline void Engine::stop_devices() noexcept {
    for (Rail& rail : rails_) {
        for (QueuePair* queue_pair : {&*rail.peer, &*rail.self}) {
            // An error of abort() is ignored: if the queue pair cannot be moved to the error state,
            // its device was removed.
            static_cast<void>(attempt([queue_pair] { queue_pair->abort(); }));
        }
    }
    // After this call the program may reuse the memory of its requests. Therefore wait up to 200 ms
    // until all work requests have completed.
    const std::int64_t end = now_ns() + ns(std::chrono::milliseconds(200));
    for (Rail& rail : rails_) {
        WorkCompletion completion;
        while (!(rail.to_peer.idle() && rail.to_self.idle()) && now_ns() < end) {
            while (rail.cq.poll(completion) > 0) {
                note_completed(rail, WorkId::decode(completion.wr_id));
            }
        }
    }
}

inline bool Engine::poll() noexcept {
    bool any = false;
    for (Rail& rail : rails_) {
        std::array<WorkCompletion, 16> completions; // NOLINT(*-member-init): poll writes it
        const int count = rail.cq.poll(completions);
        if (count < 0) {
            fail(EIO);
            return any;
        }
        for (const WorkCompletion& completion :
             std::span(completions).first(static_cast<std::size_t>(count))) {
            complete(rail, completion);
        }
        any |= count > 0;
    }
    heard_ |= any;
    return any;
}

inline void Engine::complete(Rail& rail, const WorkCompletion& completion) noexcept {
    const WorkId id = WorkId::decode(completion.wr_id);
    note_completed(rail, id);
    if (completion.status != IBV_WC_SUCCESS) {
        if (broken_ == 0) {
            explain(id, completion.status);
        }
        return;
    }
    if (id.work == Work::receive) {
        if (broken_ == 0) {
            arrived(id.number, completion);
        }
    } else if (id.number != OperationTable::none) {
        Operation& operation = operations_[id.number];
        if (operation.stage != Stage::idle && operation.pending > 0) {
            --operation.pending;
            settle(id.number);
        }
    }
}

inline void Engine::explain(const WorkId& id, ibv_wc_status status) noexcept {
    const std::uint32_t culprit = id.work != Work::receive ? id.number : OperationTable::none;
    switch (status) {
        case IBV_WC_LOC_LEN_ERR:
        case IBV_WC_LOC_QP_OP_ERR:
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
            fail(ECONNABORTED, culprit, EFAULT);
            return;
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
            fail(ECONNABORTED, culprit, EACCES);
            return;
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RNR_RETRY_EXC_ERR:
        case IBV_WC_RESP_TIMEOUT_ERR:
            fail(EHOSTUNREACH);
            return;
        case IBV_WC_WR_FLUSH_ERR:
            // The work request was flushed, because the queue pair is in the error state. The peer
            // is the cause: it sent an invalid request, or its process ended.
            fail(ECONNRESET);
            return;
        default:
            fail(EIO);
            return;
    }
}

inline void Engine::probe() noexcept {
    Rail& rail = rails_[0];
    static_cast<void>(post(
        rail.to_peer, Work::remote, OperationTable::none,
        [&](const WorkOptions& options) {
            return rail.peer->post_write(std::span<const ibv_sge>(), probe_, options);
        },
        true));
}

inline void Engine::look_around(std::int64_t now) noexcept {
    if (options_.timeout.count() > 0 && broken_ == 0) {
        end_late(now);
    }
    if (heard_) {
        heard_ = false;
        looked_ns_ = probed_ns_ = now;
        return;
    }
    if (broken_ != 0 || now - looked_ns_ < ns(options_.heartbeat) / 10) {
        return;
    }
    looked_ns_ = now;
    if (const int error = check_peer_socket(socket_.get()); error != 0) {
        left(error);
        return;
    }
    if (operations_.in_use() > 0 && now - probed_ns_ >= ns(options_.heartbeat) &&
        rails_[0].to_peer.has_room(0)) {
        probed_ns_ = now;
        probe();
    }
}

inline void Engine::end_late(std::int64_t now) noexcept {
    for (std::uint32_t i = 0; i < operations_.size(); ++i) {
        const Operation& operation = operations_[i];
        if (operation.stage != Stage::idle && operation.stage != Stage::done &&
            now >= operation.deadline) {
            fail(ECONNABORTED, i, ETIMEDOUT);
            return;
        }
    }
}

inline void Engine::left(int error) noexcept {
    while (poll() && broken_ == 0) {
    }
    if (broken_ != 0) {
        return;
    }
    peer_left_ = error == ECONNRESET;
    if (!peer_left_) {
        fail(error);
        return;
    }
    broken_ = error;
    end_operations(error, OperationTable::none, 0);
}

} // namespace rdmabuf::transport::detail
