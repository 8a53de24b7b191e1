// SPDX-License-Identifier: BSD-3-Clause
//
// Runs an event loop that sleeps in epoll_wait(2). Two peers in this process send each other
// messages. Their completion queues share one completion channel. The loop also reads the
// asynchronous events of the device.
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <utility>

#include <rdmabuf/rdmabuf.hpp>

namespace {

constexpr std::uint64_t receive_id = 1;
constexpr unsigned rounds = 1000;

struct Peer {
    Peer(const rdmabuf::ProtectionDomain& pd, const rdmabuf::CompletionChannel& channel)
        : mr(pd, memory.data(), memory.size()),
          // The cq_context of a completion queue points to the peer that owns the queue.
          cq(pd.context(), {.channel = &channel, .cq_context = this}),
          prepared(rdmabuf::QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq})) {
        prepared.post_recv(mr.sge(0, 32), receive_id).throw_if_failed();
    }
    void send() const { qp->post_send(mr.sge(32, 32)).throw_if_failed(); }

    // Requests the next completion event, and only then polls until the queue is empty: a
    // completion that arrived before the request causes no event.
    void drain() {
        cq.request_notification().throw_if_failed();
        for (rdmabuf::WorkCompletion completion{}; cq.poll(completion) > 0;) {
            if (!rdmabuf::succeeded(completion)) {
                throw std::runtime_error(rdmabuf::describe(completion));
            }
            if (completion.wr_id == receive_id) {
                ++received;
                qp->post_recv(mr.sge(0, 32), receive_id).throw_if_failed();
                send();
            }
        }
    }

    std::array<std::byte, 64> memory{};
    rdmabuf::MemoryRegion mr;
    rdmabuf::CompletionQueue cq;
    rdmabuf::PreparedQueuePair prepared;
    std::optional<rdmabuf::QueuePair> qp;
    unsigned received = 0;
};

void add(const rdmabuf::UniqueFd& epoll, int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    rdmabuf::Status(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno)
        .throw_if_failed("epoll_ctl");
}

} // namespace

int main() try {
    const rdmabuf::Context context = rdmabuf::Context::open_first();
    const rdmabuf::ProtectionDomain pd(context);
    const rdmabuf::CompletionChannel channel(context);
    Peer left(pd, channel);
    Peer right(pd, channel);
    left.qp = std::move(left.prepared).connect(right.prepared.address());
    right.qp = std::move(right.prepared).connect(left.prepared.address());

    const rdmabuf::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    add(epoll, channel.fd());
    add(epoll, context.async_fd());
    left.drain(); // requests the first event of each queue
    right.drain();
    left.send();
    while (left.received < rounds) {
        epoll_event event{};
        if (::epoll_wait(epoll.get(), &event, 1, 10'000) == 0) {
            throw std::runtime_error("no event within 10 s");
        }
        // Handles at most one completion event and one asynchronous event. The next epoll_wait()
        // returns at once if another event is pending.
        if (const ibv_cq* const ready = channel.get_event(); ready != nullptr) {
            Peer& peer = *static_cast<Peer*>(ready->cq_context);
            peer.cq.acknowledge_event(); // acknowledged in batches
            peer.drain();
        }
        if (const auto pending = context.get_async_event()) {
            std::printf("event: %s\n", pending->event().name());
        }
    }
    std::printf("%u messages there and %u back\n", right.received, left.received);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
