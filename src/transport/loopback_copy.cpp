// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/transport/detail/loopback_copy.hpp>

namespace rdmabuf::transport::detail {

int LoopbackCopy::copy(ReceiveRequest& receive, const std::byte* data) noexcept {
    SharedRail& rail = *shared_.rails[0];
    if (const int error = check(rail); error != 0) {
        return error;
    }
    const std::span<const LocalChunk> chunks = receive.buffer.memory->rail(0);
    std::uint64_t at = receive.buffer.device_address();
    std::uint64_t left = receive.bytes;
    // The copy needs a send and a receive for each registered chunk that the message touches in the
    // receive buffer. A message that touches more than max_pieces chunks cannot be copied.
    if (!rail.loopback->queue.has_room(max_pieces) ||
        rail.loopback->receives + max_pieces > rail.loopback->receive_depth) {
        return EAGAIN;
    }
    claim(*rail.loopback, receive);
    const LocalChunk* chunk = rdmabuf::detail::find_chunk(chunks, at);
    for (std::uint32_t piece = 0; left > 0; ++piece, ++chunk) {
        if (chunk == nullptr || chunk == chunks.data() + chunks.size() || piece == max_pieces) {
            return EFAULT;
        }
        const std::uint64_t length = std::min(left, chunk->length - (at - chunk->address));
        ibv_sge to = {
            .addr = at, .length = static_cast<std::uint32_t>(length), .lkey = chunk->lkey};
        ibv_sge from = {.addr = reinterpret_cast<std::uintptr_t>(data),
                        .length = static_cast<std::uint32_t>(length),
                        .lkey = rail.bounce_buffers.lkey()};
        if (const int error = post_pair(rail, to, from, receive); error != 0) {
            return error;
        }
        data += length;
        at += length;
        left -= length;
    }
    return 0;
}

void LoopbackCopy::query_ports(std::size_t rails) noexcept {
    for (std::size_t i = 1; i < rails; ++i) {
        SharedRail& rail = *shared_.rails[i];
        if (rail.failure == nullptr && rail.port_down) {
            static_cast<void>(attempt([&] { shared_.query_port(rail); }));
        }
    }
}

int LoopbackCopy::flush(RequestState& request, std::size_t rails) noexcept {
    const auto is_left_out = [&](std::size_t i) {
        return i != 0 && (shared_.rails[i]->failure != nullptr || shared_.rails[i]->port_down);
    };
    for (std::size_t i = 0; i < rails; ++i) {
        if (is_left_out(i)) {
            continue;
        }
        if (const int error = check(*shared_.rails[i]); error != 0) {
            return error;
        }
        if (!shared_.rails[i]->loopback->queue.has_room()) {
            return EAGAIN;
        }
    }
    const std::uint64_t at = request.buffer.device_address();
    for (std::size_t i = 0; i < rails; ++i) {
        if (is_left_out(i)) {
            continue;
        }
        SharedRail& rail = *shared_.rails[i];
        const LocalChunk* chunk = rdmabuf::detail::find_chunk(request.buffer.memory->rail(i), at);
        if (chunk == nullptr) {
            return EFAULT;
        }
        ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(shared_.pool.scratch_line()),
                         .length = 1,
                         .lkey = rail.bounce_buffers.lkey()};
        ibv_send_wr work =
            make_read(std::span<const ibv_sge>(&entry, 1), {.address = at, .rkey = chunk->rkey});
        claim(*rail.loopback, request);
        const int error = post(rail, work, &request);
        if (error == EAGAIN || (error != 0 && i == 0)) {
            return error;
        }
        if (error != 0) {
            shared_.fail(rail, "ibv_post_send failed on a loopback queue pair");
        }
    }
    return 0;
}

int LoopbackCopy::post(SharedRail& rail, ibv_send_wr& work, RequestState* request) noexcept {
    Loopback& loopback = *rail.loopback;
    if (request == nullptr) {
        loopback.owner = WorkId::no_request;
    }
    work.wr_id = WorkId{.work = Work::loopback,
                        .number = request != nullptr ? request->index : WorkId::no_request,
                        .sequence = loopback.queue.next()}
                     .encode();
    work.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* failed = nullptr;
    const int error = ibv_post_send(loopback.queue_pair.native(), &work, &failed);
    if (error == 0) {
        loopback.queue.posted(true);
        if (request != nullptr) {
            ++request->pending;
        }
    }
    return error == ENOMEM ? EAGAIN : error;
}

int LoopbackCopy::check(const SharedRail& rail) noexcept {
    if (rail.failure != nullptr) {
        return EIO;
    }
    if (!rail.loopback) {
        return rail.loopback_error != 0 ? rail.loopback_error : EAGAIN;
    }
    return rail.loopback->failed || (rail.suspects != 0 && !rail.loopback->idle()) ? EAGAIN : 0;
}

void LoopbackCopy::claim(Loopback& loopback, const RequestState& request) noexcept {
    if (loopback.idle()) {
        loopback.owner = request.index;
    } else if (loopback.owner != request.index) {
        loopback.owner = WorkId::no_request;
    }
}

int LoopbackCopy::post_pair(SharedRail& rail, ibv_sge& to, ibv_sge& from,
                            ReceiveRequest& request) noexcept {
    ibv_qp* const pair = rail.loopback->queue_pair.native();
    ibv_recv_wr receive{};
    receive.wr_id = WorkId{.work = Work::loopback_receive, .number = request.index}.encode();
    receive.sg_list = &to;
    receive.num_sge = 1;
    ibv_recv_wr* failed = nullptr;
    if (const int error = ibv_post_recv(pair, &receive, &failed); error != 0) {
        return error;
    }
    ++request.pending;
    ++rail.loopback->receives;
    ibv_send_wr send = make_send(std::span<const ibv_sge>(&from, 1));
    const int error = post(rail, send, &request);
    if (error != 0) {
        // The send was not posted, so a later send would arrive in this posted receive. abort()
        // prevents this: it moves the queue pair to the error state, which flushes the receive.
        rail.loopback->abort();
        return error;
    }
    return 0;
}

} // namespace rdmabuf::transport::detail
