// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "engine/implementation.hpp"
#include "objects/process.hpp"

// Delayed ACKs. A requester requests no ACK for most unsignaled requests, and the responder does
// not acknowledge such a request at once. But a NIC acknowledges each executed request soon, even
// if the program then resets or destroys the queue pair. Therefore the responder sends a delayed
// ACK in the next cycle of the agent thread (a background thread) in which no planned faults affect
// packets, and at the latest when its queue pair enters RESET or ERR or is destroyed.

namespace softverbs {

void Engine::Implementation::list_ack(Qp& qp) noexcept {
    try {
        ack_pending.push_back(&qp);
        qp.responder.ack_listed = true;
    } catch (const std::bad_alloc&) {
        // Memory is exhausted, so the agent (background) thread will not send this delayed ACK.
        // Engine::leaving() sends it later, or the requester requests an ACK after a timeout.
    }
}

void Engine::Implementation::acknowledge(Qp& qp) {
    if (std::exchange(qp.responder.ack_pending, false)) {
        send_ack(qp, qp.responder.ack_connection, (qp.responder.expected_psn - 1) & psn_mask);
    }
}

void Engine::Implementation::acknowledge_all() {
    std::vector<Qp*> executed;
    std::swap(executed, ack_pending);
    for (Qp* const qp : executed) {
        qp->responder.ack_listed = false;
    }
    for (Qp* const qp : executed) {
        acknowledge(*qp);
    }
    drain();
    if (ack_pending.empty()) {
        executed.clear();
        std::swap(executed, ack_pending); // keeps the allocated memory
    }
}

void Engine::Implementation::wait_until_consumed(std::unique_lock<Lock>& lock) {
    constexpr std::uint64_t longest_wait_ns = 1'000'000'000;
    constexpr long interval_ns = 200'000;
    const std::uint64_t end = fabric::now_ns() + longest_wait_ns;
    const auto is_consumed = [](const auto& peer) {
        return peer.first->taken() >= peer.first->sent();
    };
    // Wait until all connected processes have consumed the packets of this process, but at most 1
    // second. The agent (background) thread removes processes that have ended from "peers", so the
    // loop does not wait for them.
    while (!std::ranges::all_of(peers, is_consumed) && fabric::now_ns() < end) {
        lock.unlock();
        fabric::pause_ns(interval_ns);
        lock.lock();
    }
}

void Engine::handle_arrived() {
    Implementation& engine = *implementation_;
    if (engine.node != nullptr) {
        engine.node->service(engine); // accepts new connections, on which packets may have arrived
    }
    // Each round processes at most 64 received packets. Limit the number of rounds, because peers
    // may continue to send packets. 256 rounds (16,384 packets) are sufficient for the full rings
    // of one peer: the rings have 384 KiB, and each packet occupies at least 32 bytes.
    constexpr unsigned most_rounds = 256;
    for (unsigned round = 0; round < most_rounds && engine.work() != 0; ++round) {
    }
}

void Engine::leaving(Qp& qp) {
    if (!implementation_->holding.empty()) {
        implementation_->send_all_held(); // a NIC would have sent these requests already
    }
    handle_arrived();
    implementation_->acknowledge(qp);
    // If the peer of "qp" is a queue pair of this process, the call above has processed the packets
    // to it. Send the delayed ACK of the peer now.
    Qp* const peer =
        qp.requester.route.remote ? nullptr : process().qps.find(qp.attributes.dest_qp_num);
    if (peer != nullptr && peer->attributes.dest_qp_num == qp.number()) {
        implementation_->acknowledge(*peer);
    }
    implementation_->drain();
}

} // namespace softverbs
