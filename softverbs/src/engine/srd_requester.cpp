// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>

#include "control/disorder.hpp"
#include "engine/implementation.hpp"
#include "fabric/clock.hpp"
#include "objects/process.hpp"

// The requester of SRD queue pairs; see objects/srd.hpp. SRD does not keep the order of requests,
// so programs must work with any order. Therefore the requester delays a few posted requests, and
// sends them in a random order. The environment variable SOFTVERBS_DISORDER sets the seed of the
// random numbers. All delayed requests are sent when the program polls an empty completion queue,
// or when a timer of 50 µs expires.

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;
using SrdState = SrdRequest::State;
using efa::Status;

/// Maximum number of posted requests that a queue pair delays. When one more is posted, a random
/// one of all these requests is sent, because SRD does not keep their order.
constexpr std::size_t most_held = 3;
constexpr std::uint64_t hold_ns = 50'000;
/// Maximum number of timeouts of a request without progress. The next timeout makes the request
/// fail.
constexpr unsigned most_retries = 6;
constexpr std::uint64_t first_rnr_delay_ns = 100'000;
constexpr unsigned longest_rnr_shift = 7;
constexpr unsigned unlimited = 7; // as a value of ibv_qp_attr::rnr_retry

/// Returns the next random number of the queue pair (splitmix64).
std::uint64_t random(Srd& srd) noexcept {
    srd.random += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = srd.random;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31U);
}

/// Prepares the request so that its unacknowledged data is sent again.
void rewind(SrdRequest& request) noexcept {
    request.sent = request.acknowledged;
    request.begun = false;
    request.state = SrdState::sent;
}

void reserve(std::vector<std::uint64_t>& numbers, std::size_t count) {
    if (numbers.capacity() < count) {
        numbers.reserve(2 * count);
    }
}

/// Moves the next posted request from the send queue to Srd::requests, and adds its number to the
/// list "held", from which requests are sent later in a random order.
void take_posted(Qp& qp) {
    Srd& srd = *qp.srd;
    const std::uint64_t position = qp.sends.first();
    // Reserve memory before the first change, so that nothing changes if memory is exhausted. Each
    // request may later be added to the list "blocked", so reserve an element for it there.
    reserve(srd.held, srd.held.size() + 1);
    reserve(srd.blocked, srd.requests.size() + 1);
    SrdRequest& taken = srd.requests[srd.next_number];
    taken.request = qp.sends[position];
    if (taken.request.is_inline) {
        std::copy_n(qp.inline_data(position), taken.request.length, taken.inline_data.begin());
    } else {
        std::ranges::copy(qp.entries(position), taken.entries.begin());
    }
    srd.held.push_back(srd.next_number++);
    qp.sends.pop();
}

bool can_send(const Qp& qp) noexcept {
    return qp.state() == IBV_QPS_RTS || qp.state() == IBV_QPS_SQD;
}

/// Sends randomly selected requests of the list "held", which contains the posted requests that
/// were not sent yet, until it contains at most @p most.
void send_held(Engine::Implementation& engine, Qp& qp, std::size_t most) {
    auto& held = qp.srd->held;
    while (can_send(qp) && held.size() > most) {
        const auto chosen =
            held.begin() + static_cast<std::ptrdiff_t>(random(*qp.srd) % held.size());
        const std::uint64_t number = *chosen;
        held.erase(chosen);
        transmit_srd(engine, qp, number);
    }
}

/// Continues the requests in Srd::blocked. A request whose ring is still full is added to this list
/// again.
void send_blocked(Engine::Implementation& engine, Qp& qp) {
    auto& blocked = qp.srd->blocked;
    for (std::size_t left = blocked.size(); left > 0 && !blocked.empty(); --left) {
        const std::uint64_t number = blocked.front();
        blocked.erase(blocked.begin());
        transmit_srd(engine, qp, number);
    }
}

} // namespace

void Engine::Implementation::run_srd(Qp& qp) {
    Srd& srd = *qp.srd;
    if (!can_send(qp)) {
        return;
    }
    if (!srd.blocked.empty()) {
        send_blocked(*this, qp);
    }
    while (qp.state() == IBV_QPS_RTS && !qp.sends.empty()) {
        take_posted(qp);
        send_held(*this, qp, most_held);
    }
    if (qp.state() == IBV_QPS_SQD) {
        send_held(*this, qp, 0); // the queue pair is draining
    }
    if (!srd.held.empty()) {
        if (std::ranges::find(holding, &qp) == holding.end()) {
            holding.push_back(&qp);
        }
        set_timer_before(qp, fabric::now_ns() + hold_ns);
    }
    drain();
}

void Engine::Implementation::send_all_held() {
    std::vector<Qp*> senders;
    std::swap(senders, holding);
    for (Qp* const qp : senders) {
        send_held(*this, *qp, 0);
    }
    drain();
}

void Engine::Implementation::expired_srd(Qp& qp) {
    Srd& srd = *qp.srd;
    if (!can_send(qp)) {
        return;
    }
    send_held(*this, qp, 0);
    send_blocked(*this, qp);
    const std::uint64_t now = fabric::now_ns();
    std::vector<std::uint64_t> due;
    for (const auto& [number, request] : srd.requests) {
        if (request.state != SrdState::held && request.deadline <= now) {
            due.push_back(number);
        }
    }
    for (const std::uint64_t number : due) {
        const auto found = srd.requests.find(number);
        if (found == srd.requests.end()) {
            continue;
        }
        SrdRequest& request = found->second;
        fabric::Connection* const to = request.to;
        if (request.state == SrdState::waiting_for_receiver) {
            rewind(request);
            transmit_srd(*this, qp, number);
        } else if ((request.blocked || (to != nullptr && to->taken() < request.record)) &&
                   (to == nullptr || to->delivers())) { // NOLINT(bugprone-branch-clone)
            // The request was not sent completely, or the responder's process has not read the
            // request, because that process is busy. Set a new deadline for the response without
            // counting a retry.
            request.deadline = now + first_srd_timeout_ns;
        } else if (request.retries == most_retries) {
            complete_srd(qp, number, request.answered ? Status::unresponsive : Status::unreachable);
        } else if (++request.retries; request.blocked) {
            request.deadline = now + first_srd_timeout_ns; // the ring has no room to send it again
        } else {
            ++process().counters.retried;
            rewind(request);
            transmit_srd(*this, qp, number);
        }
    }
    for (const auto& [number, request] : srd.requests) {
        set_timer_before(qp, request.deadline);
    }
}

void Engine::Implementation::disconnect_srd(Qp& qp, const fabric::Connection& connection) {
    for (auto& [number, request] : qp.srd->requests) {
        if (request.to == &connection) {
            request.to = nullptr;
            if (request.state == SrdState::sent) {
                rewind(request);
                if (!std::exchange(request.blocked, true)) {
                    qp.srd->blocked.push_back(number);
                }
            }
        }
    }
}

void Engine::Implementation::forget_connections(Qp& qp) noexcept {
    qp.requester.connection = nullptr;
    qp.requester.closed_lane = nullptr;
    qp.responder.ack_connection = nullptr;
    qp.responder.copied_from = nullptr;
    qp.responder.ack_listed = qp.responder.ack_pending = false;
    if (qp.srd != nullptr) {
        for (auto& [number, request] : qp.srd->requests) {
            request.to = nullptr;
        }
    }
}

namespace {

/// Stores the data of a read response in the memory of the request. Returns false if the access to
/// this memory is not permitted, or if the CUDA driver cannot copy the data.
bool store_response(Qp& qp, const SrdRequest& request, const Packet& packet) {
    EntryList entries;
    const std::span list(request.entries.data(), request.request.entries);
    return entries.open(qp.pd(), list, request.request.length, true) &&
           entries.put(request.acknowledged, packet.bytes);
}

} // namespace

void Engine::Implementation::handle_srd_response(Qp& qp, const Packet& packet) {
    const PacketHeader& header = packet.header;
    Srd& srd = *qp.srd;
    if (!can_send(qp) || header.swap != srd.epoch) {
        return;
    }
    const auto behind = static_cast<std::uint32_t>(srd.next_number) - header.psn;
    const std::uint64_t number = srd.next_number - behind;
    const auto found = srd.requests.find(number);
    if (found == srd.requests.end() || found->second.state != SrdState::sent ||
        found->second.request.remote_qpn != header.source) {
        return; // for example, a duplicate response
    }
    SrdRequest& request = found->second;
    const bool reads = request.request.opcode == IBV_WR_RDMA_READ;
    const std::uint64_t length = request.request.length;
    request.answered = true;
    switch (header.kind) {
        case Kind::ack:
            if (reads || header.compare_add != request.acknowledged ||
                header.offset < request.acknowledged || header.offset > request.sent) {
                return;
            }
            request.acknowledged = header.offset;
            break;
        case Kind::read_data:
            if (!reads || header.length != length || header.offset != request.acknowledged ||
                (header.flags & PacketHeader::to_fetch) != 0 ||
                (packet.bytes.empty() && length != 0)) {
                return;
            }
            if (!store_response(qp, request, packet)) {
                complete_srd(qp, number, Status::invalid_lkey);
                return;
            }
            request.acknowledged += packet.bytes.size();
            break;
        case Kind::nak:
            if (header.nak_code != PacketHeader::NakCode::rnr) {
                complete_srd(qp, number, static_cast<Status>(header.imm_or_key));
                return;
            }
            if (qp.attributes.rnr_retry != unlimited &&
                request.rnr_retries >= qp.attributes.rnr_retry) {
                complete_srd(qp, number, Status::remote_not_ready);
                return;
            }
            ++process().counters.retried;
            request.state = SrdState::waiting_for_receiver;
            request.deadline = fabric::now_ns() + (first_rnr_delay_ns << std::min(
                                                       request.rnr_retries, longest_rnr_shift));
            ++request.rnr_retries;
            set_timer_before(qp, request.deadline);
            return;
        default:
            return;
    }
    request.retries = request.rnr_retries = 0;
    if (request.acknowledged == length) {
        complete_srd(qp, number, Status::success);
    } else {
        transmit_srd(*this, qp, number);
    }
}

void Engine::Implementation::start_srd(Qp& qp) noexcept {
    Srd& srd = *qp.srd;
    srd.next_number = qp.attributes.sq_psn;
    srd.epoch = fabric::now_ns();
    srd.random = process().disorder.seed();
}

} // namespace softverbs
