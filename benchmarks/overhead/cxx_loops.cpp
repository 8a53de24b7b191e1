// SPDX-License-Identifier: BSD-3-Clause
// The loops of c_loops.c, line by line, with this library.
#include <array>

#include "loops.h"

namespace {

using rdmabuf::RemoteAddress;

bool poll_one(const rdmabuf::CompletionQueue& cq) noexcept {
    rdmabuf::WorkCompletion wc; // NOLINT(*-member-init): written before it is read, as in C
    int count = 0;
    do {
        count = cq.poll(wc);
    } while (count == 0);
    return count > 0 && rdmabuf::succeeded(wc);
}

[[gnu::noinline]] bool poll_batch(const rdmabuf::CompletionQueue& cq) noexcept {
    std::array<rdmabuf::WorkCompletion, batch_size> wc; // NOLINT(*-member-init): as in poll_one
    for (int done = 0; done < batch_size;) {
        const int count = cq.poll(wc);
        if (count < 0) {
            return false;
        }
        for (int i = 0; i < count; ++i) {
            if (!rdmabuf::succeeded(wc[static_cast<std::size_t>(i)])) {
                return false;
            }
        }
        done += count;
    }
    return true;
}

[[gnu::noinline]] bool poll_extended(const rdmabuf::ExtendedCompletionQueue& cq,
                                     std::uint64_t& sum) noexcept {
    rdmabuf::CompletionBatch batch = cq.start_poll();
    for (; batch; batch.next()) {
        if (!batch.succeeded()) {
            return false;
        }
        sum += batch.wr_id() + batch.byte_length() + batch.timestamp();
    }
    return batch.error().ok();
}

std::uint64_t id(long i) noexcept {
    return static_cast<std::uint64_t>(i);
}

} // namespace

int cxx_send_poll(const Endpoint& e, const transfer& t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        if (!e.qp.post_send(t.local, {.wr_id = id(i)}) || !poll_one(e.cq)) {
            return 1;
        }
    }
    return 0;
}

int cxx_write_poll(const Endpoint& e, const transfer& t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        const RemoteAddress remote{.address = t.remote_address, .rkey = t.rkey};
        if (!e.qp.post_write(t.local, remote, {.wr_id = id(i)}) || !poll_one(e.cq)) {
            return 1;
        }
    }
    return 0;
}

int cxx_fetch_add_poll(const Endpoint& e, const transfer& t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        const RemoteAddress remote{.address = t.remote_address, .rkey = t.rkey};
        if (!e.qp.post_fetch_add(t.local, remote, 1, {.wr_id = id(i)}) || !poll_one(e.cq)) {
            return 1;
        }
    }
    return 0;
}

int cxx_post_recv(const Endpoint& e, const transfer& t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        if (!e.qp.post_recv(t.local, id(i))) {
            return 1;
        }
    }
    return 0;
}

int cxx_write_list(const Endpoint& e, const transfer& t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        rdmabuf::SendList<batch_size> list;
        for (std::size_t k = 0; k < batch_size; ++k) {
            list.write({&t.local, 1}, {t.remote_address, t.rkey}, {.wr_id = k});
        }
        ibv_send_wr* failed; // NOLINT(*-init-variables): as in C
        if (!e.qp.post(list, failed) || !poll_batch(e.cq)) {
            return 1;
        }
    }
    return 0;
}

int cxx_write_batch(const Endpoint& e, const transfer& t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        rdmabuf::WorkBatch batch = e.qp.batch();
        for (std::size_t k = 0; k < batch_size; ++k) {
            batch.write({&t.local, 1}, {t.remote_address, t.rkey}, {.wr_id = k});
        }
        if (!batch.complete() || !poll_batch(e.cq)) {
            return 1;
        }
    }
    return 0;
}

int cxx_poll_extended(const Endpoint& e, const transfer& t, long iterations) {
    std::uint64_t sum = 0;
    for (long i = 0; i < iterations; ++i) {
        if (!poll_extended(e.cqx, sum)) {
            return 1;
        }
    }
    return sum == static_cast<std::uint64_t>(iterations) * batch_size * (t.local.length + 1) ? 0
                                                                                             : 1;
}
