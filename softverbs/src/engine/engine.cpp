// SPDX-License-Identifier: BSD-3-Clause
#include "engine/engine.hpp"

#include <errno.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "control/control_socket.hpp"
#include "engine/addressing.hpp"
#include "engine/implementation.hpp"
#include "fabric/background_thread.hpp"
#include "objects/process.hpp"

namespace softverbs {

Engine::Engine() : implementation_(std::make_unique<Implementation>()) {}

Engine::~Engine() = default;

int Engine::start() {
    Implementation& engine = *implementation_;
    if (engine.node != nullptr) {
        return 0;
    }
    try {
        fabric::NodeOptions options;
        options.slots = 1U << slot_bits();
        options.network = process().network;
        engine.node = std::make_unique<fabric::Node>(options);
        engine.slot = engine.node->slot();
        auto thread = std::make_unique<std::thread>();
        *thread = fabric::start_background_thread("softverbs", [&engine] { engine.agent(); });
        engine.thread = std::move(thread);
        control::start();
        if (const int error = control::plan(process().faults.take_device_faults()); error != 0) {
            std::fprintf(stderr,
                         "softverbs: the faults of ports and devices in SOFTVERBS_FAULTS will not "
                         "occur, because the control thread cannot be created: %s; raise the "
                         "limits of processes and memory\n",
                         std::strerror(error));
        }
        return 0;
    } catch (const std::system_error& error) {
        engine.node.reset();
        std::fprintf(stderr, "softverbs: %s\n", error.what());
        return error.code().value() == 0 ? EIO : error.code().value();
    } catch (const std::bad_alloc&) {
        engine.node.reset();
        return ENOMEM;
    }
}

unsigned Engine::slot() const noexcept {
    return implementation_->slot;
}

void Engine::posted(Qp& qp) noexcept {
    try {
        implementation_->copy_budget = copy_step_bytes;
        implementation_->run(qp);
    } catch (const std::bad_alloc&) {
        implementation_->run_later();
    }
}

void Engine::progress() noexcept {
    Implementation& engine = *implementation_;
    ++engine.polls;
    if (engine.copying) [[unlikely]] {
        // Let other threads take Process::lock. Otherwise, a program that polls in a loop could
        // hold this lock almost all the time until the data of a long message is copied.
        process().lock.pass();
    }
    try {
        if (!engine.holding.empty()) [[unlikely]] {
            engine.send_all_held();
        }
        engine.work();
        if (engine.waiting_for_receivers != 0 || !engine.delayed.empty() ||
            !engine.held_writes.empty()) {
            engine.run_timers(fabric::now_ns());
        }
    } catch (const std::bad_alloc&) {
        engine.run_later();
    }
}

void Engine::program_sleeps() {
    Implementation& engine = *implementation_;
    engine.program_sleeps = true;
    if (engine.agent_state == Implementation::Agent::napping && engine.node != nullptr) {
        engine.agent_state = Implementation::Agent::awake;
        engine.node->wake();
    }
}

namespace {

void update_short_path(Qp& qp) noexcept {
    Requester& requester = qp.requester;
    Device& device = device_of(qp.qp_base);
    requester.own_device = device.index;
    requester.port = device.port(qp.attributes.port_num);
    requester.short_path = (qp.type() == IBV_QPT_RC || qp.type() == IBV_QPT_UC) &&
                           requester.device >= 0 && requester.device != device_by_address &&
                           requester.port != nullptr &&
                           requester.port->attributes.max_msg_sz >= small_message;
    requester.short_form = ShortHeader::first_byte(qp.type(), qp.attributes.path_mtu);
    requester.to_this_process =
        requester.short_path && slot_of(qp.attributes.dest_qp_num) == process().engine.slot();
}

} // namespace

void Engine::state_changed(Qp& qp, ibv_qp_state from) {
    withdraw_writes();
    Implementation& engine = *implementation_;
    Requester& requester = qp.requester;
    update_short_path(qp);
    switch (qp.state()) {
        case IBV_QPS_RESET:
            engine.forget(qp);
            qp.requester = {};
            qp.requester.next = qp.sends.end();
            qp.responder = {};
            break;
        case IBV_QPS_RTR:
            qp.responder.expected_psn = qp.attributes.rq_psn;
            if (!is_datagram(qp.type())) {
                const Destination peer =
                    destination_of(device_of(qp.qp_base), qp.attributes.ah_attr);
                requester.device = peer.device;
                requester.route = peer.route;
                update_short_path(qp);
            }
            break;
        case IBV_QPS_RTS:
            if (from == IBV_QPS_RTR) {
                requester.next = qp.sends.first();
                requester.next_psn = qp.attributes.sq_psn;
                if (qp.srd != nullptr) {
                    Implementation::start_srd(qp);
                }
            }
            requester.retries_left = qp.attributes.retry_cnt;
            requester.rnr_retries_left = qp.attributes.rnr_retry;
            engine.run(qp);
            break;
        case IBV_QPS_SQD:
            // In the state SQD, the queue pair waits until all requests in flight have completed.
            // Retransmit these requests with the ACK request flag, because the first transmission
            // may not have requested an ACK.
            if (from == IBV_QPS_RTS && qp.is_reliable()) {
                engine.resend(qp);
            }
            engine.run(qp);
            break;
        default:
            engine.forget(qp);
            break;
    }
}

void Engine::flushed(Qp& qp) {
    withdraw_writes();
    implementation_->acknowledge(qp);
    implementation_->forget(qp);
    qp.requester.next = qp.sends.end();
    qp.requester.reads_in_flight = qp.requester.fetches_in_flight = 0;
    qp.requester.finished_early = 0;
}

void Engine::destroyed(Qp& qp) {
    // Send the packets of this queue pair that SOFTVERBS_DISORDER (a test setting) still delays,
    // because the program regards them as sent. Afterwards, the queue pair is freed.
    implementation_->send_late_packets(qp.number());
    implementation_->forget(qp);
    withdraw_responses();
}

void Engine::Implementation::forget(Qp& qp) {
    Requester& requester = qp.requester;
    if (std::exchange(requester.timed, false)) {
        std::erase(timed, &qp);
    }
    if (std::exchange(requester.stalled, false)) {
        std::erase(stalled, &qp);
    }
    if (std::exchange(requester.waiting_for_receiver, false)) {
        --waiting_for_receivers;
    }
    if (std::exchange(qp.responder.ack_listed, false)) {
        std::erase(ack_pending, &qp);
    }
    std::erase(holding, &qp);
    requester.deadline = 0;
    withdraw_requests(qp);
}

void Engine::ports_changed() {
    withdraw_writes();
    for (Qp* const qp : process().qps.all()) {
        if (qp != nullptr) {
            update_short_path(*qp);
        }
    }
    implementation_->run_all();
}

void Engine::withdraw_writes() noexcept {
    std::erase_if(implementation_->granted, [](fabric::Connection* connection) {
        connection->withdraw_grants();
        return !connection->write_in_progress();
    });
}

void Engine::wait_for_writes() noexcept {
    constexpr long shortest_ns = 20'000;
    constexpr long longest_ns = 1'000'000;
    long duration_ns = shortest_ns;
    while (std::ranges::any_of(implementation_->granted, [](fabric::Connection* connection) {
        return connection->write_in_progress();
    })) {
        const Unlocked unlocked;
        fabric::pause_ns(duration_ns);
        duration_ns = std::min(2 * duration_ns, longest_ns);
    }
}

void Engine::withdraw_responses() noexcept {
    withdraw_writes();
    implementation_->release_writes();
    for (auto& [connection, peer] : implementation_->peers) {
        if (std::exchange(peer.may_fetch_responses, false)) {
            connection->withdraw(fabric::Lane::responses);
        }
    }
}

void Engine::unshare(std::uint32_t id) {
    for (auto& [connection, peer] : implementation_->peers) {
        if (peer.shares.erase(id) != 0) {
            connection->unshare(id);
        }
    }
}

const char* Engine::pull_method() const noexcept {
    if (implementation_->last_peer == nullptr) {
        return "none yet";
    }
    switch (implementation_->last_peer->pull_method()) {
        case fabric::PullMethod::process_vm:
            return "process_vm";
        case fabric::PullMethod::none:
            return "records";
        case fabric::PullMethod::unknown:
            break;
    }
    return "none yet";
}

void Engine::Implementation::forget_peers() {
    for (Qp* const qp : process().qps.all()) {
        if (qp != nullptr) {
            forget_connections(*qp);
        }
    }
    peers.clear();
    granted.clear();
    delayed.clear();
    ack_pending.clear();
    std::erase_if(set_asides, [](const auto& packet) { return packet.from != nullptr; });
    last_peer = nullptr;
}

void Engine::abandon() {
    Implementation& engine = *implementation_;
    if (engine.node == nullptr) {
        return;
    }
    engine.node->abandon();
    // In a child process after fork(2), the agent (background) thread does not exist, and the node
    // (the connections to other processes) belongs to the parent process. Therefore do not destroy
    // these two objects.
    static_cast<void>(engine.node.release());
    static_cast<void>(engine.thread.release());
    engine.forget_peers();
    engine.agent_state = Implementation::Agent::awake;
}

void Engine::shutdown(std::unique_lock<Lock>& lock) {
    Implementation& engine = *implementation_;
    if (engine.node == nullptr) {
        return;
    }
    fabric::run_clock(); // the waits below need the agent thread and a running clock
    engine.node->wake();
    engine.acknowledge_all();
    engine.send_all_held();
    engine.send_late_packets(0);
    engine.release_writes();
    engine.wait_until_consumed(lock);
    engine.stopping = true;
    engine.node->wake();
    lock.unlock();
    engine.thread->join();
    lock.lock();
    // All connections will be closed below. Remove them from all queue pairs first, because other
    // threads of the program may still call verbs. These queue pairs can then no longer reach other
    // processes.
    withdraw_writes();
    engine.forget_peers();
    engine.stalled.clear();
    engine.node.reset();
}

} // namespace softverbs
