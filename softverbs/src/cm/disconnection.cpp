// SPDX-License-Identifier: BSD-3-Clause
// Implements the end of connections: a disconnect, a destroyed id, the end of a peer's process, and
// a timeout.
#include <cerrno>
#include <utility>

#include "cm/manager.hpp"
#include "fabric/clock.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs::cm {

namespace {

/// While the queue pair has completions that the program has not polled, RDMA_CM_EVENT_DISCONNECTED
/// is delayed for at most 0.2 seconds. softverbs checks every 0.5 ms whether the program has polled
/// them.
constexpr std::uint64_t longest_disconnect_wait_ns = 200'000'000;
constexpr std::uint64_t disconnect_check_interval_ns = 500'000;

} // namespace

/// Sends a message such as DREQ or REJ to the peer of an id that is destroyed, so that the peer
/// does not wait for this id.
void Manager::withdraw(Id& id) {
    Message made = message(id, MessageType::rej);
    made.status = reject::consumer_defined;
    switch (id.exchanged) {
        case Exchanged::req_sent:
            made.status = reject::timeout;
            break;
        case Exchanged::req_received:
        case Exchanged::rep_sent:
        case Exchanged::rep_received:
            break;
        case Exchanged::established:
            made.type = MessageType::dreq;
            break;
        case Exchanged::dreq_received:
            made.type = MessageType::drep;
            break;
        case Exchanged::sidr_req_received:
            made.type = MessageType::sidr_rep;
            made.status = sidr::rejected;
            break;
        default:
            return;
    }
    id.exchanged = Exchanged::nothing;
    send(id, made);
}

void Manager::end_connection(Id& id, int status) {
    id.exchanged = Exchanged::timewait;
    id.disconnect_waits_until = 0;
    set_deadline(id, timeout_ns(timewait_timeout));
    if (id.state == State::connecting) {
        id.state = State::disconnected;
        raise(id, EventType::disconnected, status);
    }
}

void Manager::received_disconnect(Id& id) {
    if (id.exchanged == Exchanged::dreq_sent) { // Both sides disconnect at the same time.
        send(id, message(id, MessageType::drep));
        end_connection(id, 0);
        return;
    }
    clear_deadline(id);
    id.exchanged = Exchanged::dreq_received;
    id.disconnect_waits_until = fabric::now_ns() + longest_disconnect_wait_ns;
    report_disconnect(id);
}

/// Raises RDMA_CM_EVENT_DISCONNECTED after a DREQ has arrived. With a NIC, the completions of
/// earlier messages are in the completion queue long before the event, so a thread that polls gets
/// them first. With softverbs, that thread may not have run between the messages and the DREQ.
/// Therefore the event is delayed until the program has polled these completions. The delay is
/// limited, because a program may wait for the event before it polls.
void Manager::report_disconnect(Id& id) {
    bool has_completions = false;
    {
        const Guard guard;
        process().engine.handle_arrived();
        has_completions = has_unpolled_completions(id.qp_num);
    }
    if (has_completions && fabric::now_ns() < id.disconnect_waits_until) {
        set_deadline(id, disconnect_check_interval_ns);
        return;
    }
    id.disconnect_waits_until = 0;
    id.state = State::disconnected;
    raise(id, EventType::disconnected);
}

/// Ends all rdma_cm connections to the process @p peer, and raises the same events as if that
/// process had destroyed its ids. Called when that process has ended, or when the connection to it
/// has failed.
void Manager::lost(const Peer& peer) {
    for (const auto& [handle, each] : ids_) {
        Id& id = *each;
        if (id.communication_id == 0 || id.peer != peer) {
            continue;
        }
        switch (id.exchanged) {
            case Exchanged::req_sent:
            case Exchanged::req_received:
            case Exchanged::rep_sent:
            case Exchanged::rep_received: {
                clear_deadline(id);
                id.exchanged = Exchanged::nothing;
                raise(id, rejected(reject::consumer_defined, nullptr));
                break;
            }
            case Exchanged::established:
                // With a NIC, the kernel sends a DREQ for each connection of a process that ends.
                // Handle the end of the process as if this DREQ had arrived.
                received_disconnect(id);
                break;
            case Exchanged::dreq_sent:
                end_connection(id, 0);
                break;
            case Exchanged::sidr_req_sent:
                clear_deadline(id);
                id.exchanged = Exchanged::nothing;
                raise(id, make_event(EventType::unreachable, sidr::rejected));
                break;
            default:
                break;
        }
    }
}

void Manager::expired(Id& id) {
    if (const auto request = std::move(id.unsent_request); request != nullptr) {
        send_request(id, *request);
        return;
    }
    if (exchange_.cancel(id.communication_id)) {
        raise(id, EventType::unreachable, -ETIMEDOUT);
        return;
    }
    switch (id.exchanged) {
        case Exchanged::req_sent:
        case Exchanged::rep_sent:
        case Exchanged::sidr_req_sent:
            id.exchanged = Exchanged::nothing;
            raise(id, EventType::unreachable, -ETIMEDOUT);
            break;
        case Exchanged::dreq_sent:
            end_connection(id, -ETIMEDOUT);
            break;
        case Exchanged::dreq_received:
            report_disconnect(id);
            break;
        case Exchanged::timewait:
            id.exchanged = Exchanged::nothing;
            raise(id, EventType::timewait_exit);
            break;
        default:
            break;
    }
}

} // namespace softverbs::cm
