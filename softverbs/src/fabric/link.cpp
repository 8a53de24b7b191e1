// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/link.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "fabric/uncancellable.hpp"

namespace softverbs::fabric {
namespace {

constexpr std::size_t index(Lane lane) noexcept {
    return static_cast<std::size_t>(lane);
}

/// Executes a full memory barrier, for memory that is shared with another process.
void fence() noexcept {
    // ThreadSanitizer does not support fences, and g++ warns about them in builds with it (-Wtsan).
    // g++ defines __SANITIZE_THREAD__ in these builds. clang 14 does not define it and keeps the
    // fence, without a warning.
#ifndef __SANITIZE_THREAD__
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

} // namespace

bool can_be_doorbell(const UniqueFd& fd) noexcept {
    // Writing to a pipe could raise SIGPIPE, and writing to a file could fill a disk. Therefore
    // accept only a descriptor for which fstat(2) returns the file type 0: an eventfd, or another
    // anonymous inode, to which a write does no harm.
    struct stat status {};
    return fd && ::fstat(fd.get(), &status) == 0 && (status.st_mode & S_IFMT) == 0 &&
           (::fcntl(fd.get(), F_GETFL) & O_NONBLOCK) != 0;
}

Link::Link(LinkContext& context, UniqueFd socket, LinkMemory memory, Side side, unsigned slot,
           pid_t pid, UniqueFd doorbell)
    : context_(context),
      incoming_(memory.incoming(side)),
      outgoing_(memory.outgoing(side)),
      in_{RingConsumer(memory.incoming_ring(side, Lane::requests), longest_record(memory.sizes())),
          RingConsumer(memory.incoming_ring(side, Lane::responses),
                       longest_record(memory.sizes()))},
      out_{RingProducer(memory.outgoing_ring(side, Lane::requests)),
           RingProducer(memory.outgoing_ring(side, Lane::responses))},
      longest_(longest_record(memory.sizes())),
      grants_(memory.grants_by(side)),
      grants_to_(memory.grants_to(side)),
      slot_(slot),
      pid_(pid),
      welcomed_(side == Side::acceptor),
      memory_(std::move(memory)),
      doorbell_(std::move(doorbell)),
      mailbox_(std::move(socket), context.epoll) {
    if (context_.armed) {
        // This connection is created while another thread of this process sleeps in Node::wait().
        // Before the call of arm() below, the other process may have sent records (messages)
        // without waking this process. Therefore check for records after arm().
        arm();
        if (pending()) {
            signal_eventfd(context_.doorbell);
        }
    }
}

Sent Link::send(Lane lane, RecordParts parts) noexcept {
    if (state_ != State::open) [[unlikely]] {
        return Sent::closed;
    }
    const std::size_t length = length_of(parts);
    assert(length <= longest_);
    if (!room(lane, length)) [[unlikely]] {
        return state_ == State::open ? Sent::full : Sent::closed;
    }
    out_[index(lane)].put(parts, length);
    published(lane);
    return Sent::sent;
}

std::byte* Link::reserve(Lane lane, std::size_t length) noexcept {
    if (state_ != State::open || !room(lane, length)) [[unlikely]] {
        return nullptr;
    }
    return out_[index(lane)].reserve(length);
}

void Link::commit(Lane lane, std::size_t length) noexcept {
    out_[index(lane)].commit(length);
    published(lane);
}

void Link::published(Lane lane) noexcept {
    if (lane == Lane::requests) {
        ++sent_;
    }
    if (outgoing_.sleeping.load(std::memory_order_seq_cst) != 0 &&
        outgoing_.sleeping.exchange(0, std::memory_order_seq_cst) != 0) [[unlikely]] {
        ring_doorbell();
    }
}

bool Link::has_room(Lane lane, std::size_t length) noexcept {
    // Also return true if the connection is closed, because the caller would otherwise wait forever
    // for room. The state is checked twice, because room() can close the connection.
    return state_ != State::open || room(lane, length) || state_ != State::open;
}

bool Link::room(Lane lane, std::size_t length) noexcept {
    const std::size_t at = index(lane);
    RingProducer::Room found = out_[at].room(length);
    if (found == RingProducer::Room::not_now) [[unlikely]] {
        wanted_[at] = starved_[at] ? std::min(wanted_[at], length) : length;
        starved_[at] = true;
        if (context_.armed) {
            // Another thread of this process sleeps in Node::wait(). Set the flag that requests a
            // wakeup when the lane (the stream of requests or of responses) has room: arm() did not
            // set the flag, because the lane was not full at that time. Then check again for room,
            // because the consumer may have consumed records before it could see the flag.
            outgoing_.blocked[at].store(1, std::memory_order_seq_cst);
            found = out_[at].room(length);
        }
    }
    if (found == RingProducer::Room::garbage) [[unlikely]] {
        cut();
    }
    return found == RingProducer::Room::enough;
}

std::uint64_t Link::taken() const noexcept {
    return std::min(outgoing_.taken.load(std::memory_order_acquire), sent_);
}

void Link::withdraw(Lane lane) noexcept {
    outgoing_.withdrawn[index(lane)].store(++offers_[index(lane)], std::memory_order_relaxed);
    // The store above invalidates all Segments (descriptions of memory of this process) that were
    // sent earlier. This barrier ensures that the other process sees the store before it sees later
    // changes of that memory.
    fence();
}

bool Link::stands(Lane lane, std::uint32_t offer) const noexcept {
    // The caller has copied memory of the other process. This barrier ensures that the number of
    // calls of withdraw() by that process is loaded after the copy. If the number is still @p
    // offer, the copied bytes are valid.
    fence();
    return incoming_.withdrawn[index(lane)].load(std::memory_order_relaxed) == offer;
}

template <Lane lane>
unsigned Link::deliver(Handler& handler, unsigned budget) {
    RingConsumer& ring = in(lane);
    std::span<const std::byte> record;
    unsigned done = 0;
    while (done < budget && state_ != State::over) {
        const RingConsumer::Next next = ring.next(record);
        if (next != RingConsumer::Next::record) {
            if (next == RingConsumer::Next::garbage) {
                cut();
            }
            break;
        }
        if constexpr (lane == Lane::responses) {
            handler.on_response(*this, record);
        } else {
            refused_ = !handler.on_request(*this, record);
            if (refused_) {
                refused_at_ = context_.deliveries;
                break;
            }
            // Count the request only after on_request() has processed it, because the other
            // process regards counted requests as processed.
            incoming_.taken.store(++taken_here_, std::memory_order_release);
        }
        ++done;
        ++context_.deliveries;
        ring.pop();
    }
    if (done != 0) {
        freed(lane);
    }
    return done;
}

unsigned Link::progress(Handler& handler, unsigned budget) {
    if (state_ == State::over) [[unlikely]] {
        return 0;
    }
    if (starved_[0] || starved_[1]) [[unlikely]] {
        report_room(handler);
    }
    unsigned done = deliver<Lane::responses>(handler, budget);
    done += deliver<Lane::requests>(handler, budget - done);
    if (state_ == State::closing) [[unlikely]] {
        close_when_drained();
    }
    return done;
}

void Link::freed(Lane lane) noexcept {
    in(lane).settle();
    std::atomic<std::uint32_t>& blocked = incoming_.blocked[index(lane)];
    if (blocked.load(std::memory_order_seq_cst) != 0 &&
        blocked.exchange(0, std::memory_order_seq_cst) != 0) [[unlikely]] {
        ring_doorbell();
    }
}

bool Link::starved_lane_has_room(std::size_t lane) noexcept {
    return out_[lane].room(wanted_[lane]) != RingProducer::Room::not_now;
}

void Link::report_room(Handler& handler) {
    bool found = false;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (starved_[lane] && starved_lane_has_room(lane)) {
            starved_[lane] = false;
            found = true;
        }
    }
    if (found) {
        ++context_.deliveries;
        handler.on_room(*this);
    }
}

void Link::arm() noexcept {
    incoming_.sleeping.store(1, std::memory_order_seq_cst);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (starved_[lane]) {
            outgoing_.blocked[lane].store(1, std::memory_order_seq_cst);
        }
    }
}

void Link::disarm() noexcept {
    incoming_.sleeping.store(0, std::memory_order_relaxed);
    for (std::atomic<std::uint32_t>& blocked : outgoing_.blocked) {
        blocked.store(0, std::memory_order_relaxed);
    }
}

bool Link::pending() noexcept {
    const bool refused_again = refused_ && refused_at_ == context_.deliveries;
    bool found = state_ == State::over || !in(Lane::responses).empty() ||
                 (!refused_again && !in(Lane::requests).empty());
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        found = found || (starved_[lane] && starved_lane_has_room(lane));
    }
    return found;
}

void Link::close_when_drained() noexcept {
    if (in(Lane::requests).empty() && in(Lane::responses).empty()) {
        state_ = State::over;
    }
}

void Link::hang_up() noexcept {
    if (state_ != State::open) {
        return;
    }
    state_ = State::closing;
    starved_ = {};
    // Handler::on_request() may have rejected requests, because this connection had no room for
    // their responses. This increment causes another call of on_request() for these requests: the
    // connection is closed, so has_room() now returns true.
    ++context_.deliveries;
    mailbox_.detach();
    for (RingConsumer& ring : in_) {
        ring.freeze();
    }
    close_when_drained();
}

void Link::shut_down() noexcept {
    mailbox_.detach();
    // Call shutdown(2), because close(2) does not end the connection if a child process has
    // inherited the socket.
    ::shutdown(mailbox_.socket(), SHUT_RDWR);
}

void Link::ring_doorbell() noexcept {
    if (doorbell_) {
        // Write only if poll(2) reports that the write does not block, because the other process
        // could have made its eventfd blocking. If the counter of the eventfd is at its maximum, no
        // write is needed: the other process wakes anyway.
        if ((poll_now(doorbell_.get(), POLLOUT) & POLLOUT) != 0) {
            signal_eventfd(doorbell_.get());
        }
        return;
    }
    const NoCancellation not_cancelled;
    Message poke;
    poke.kind = MessageKind::poke;
    // Ignore errors. If the message cannot be sent because the socket is full, the other process
    // wakes anyway, because of the messages that the socket already contains.
    static_cast<void>(post(mailbox_.socket(), poke, {}));
}

} // namespace softverbs::fabric
