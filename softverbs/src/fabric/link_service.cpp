// SPDX-License-Identifier: BSD-3-Clause

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <new>
#include <utility>

#include "fabric/clock.hpp"
#include "fabric/link.hpp"
#include "fabric/scheduling_state.hpp"
#include "fabric/uncancellable.hpp"

namespace softverbs::fabric {
namespace {

/// Maximum number of messages that one call of service() receives from the socket, so that one
/// connection does not delay the others.
constexpr unsigned max_messages = 64;
/// Maximum number of memory ranges of the other process that this process maps. It is limited,
/// because Linux limits the number of mappings of a process (vm.max_map_count).
constexpr std::size_t most_pulled = 16384;
constexpr std::uint64_t alive_cache_ns = 1'000'000;

Message make_reply(std::uint32_t number, int error) noexcept {
    Message message;
    message.kind = MessageKind::shared;
    message.number = number;
    message.error = static_cast<std::uint32_t>(error);
    return message;
}

} // namespace

void Link::welcome(const Message& hello) noexcept {
    probe(hello);
    Message message;
    message.kind = MessageKind::welcome;
    context_.cookie.store_in(message);
    // Ignore errors of send(). If the connector does not receive the doorbell (the eventfd that
    // wakes this process), it wakes this process with "poke" messages instead. If the connector has
    // ended, service() detects this.
    static_cast<void>(mailbox_.send(message, context_.doorbell));
}

void Link::probe(const Message& message) noexcept {
    if (context_.pull) {
        peer_memory_.open(pid_, message);
    }
    const PullMethod method = peer_memory_ ? PullMethod::process_vm : PullMethod::none;
    incoming_.pull.store(static_cast<std::uint32_t>(method), std::memory_order_release);
}

PullMethod Link::pull_method() const noexcept {
    if (!context_.pull) {
        return PullMethod::none;
    }
    switch (outgoing_.pull.load(std::memory_order_acquire)) {
        case static_cast<std::uint32_t>(PullMethod::unknown):
            return PullMethod::unknown;
        case static_cast<std::uint32_t>(PullMethod::process_vm):
            return PullMethod::process_vm;
        default:
            return PullMethod::none;
    }
}

int Link::pull(std::uint64_t address, std::uint32_t share, std::span<std::byte> into) noexcept {
    if (share == 0) {
        return pull_private(address, into);
    }
    const auto found = pulled_.find(share);
    return found == pulled_.end() ? EINVAL : found->second.read(address, into);
}

int Link::pull_private(std::uint64_t address, std::span<std::byte> into) noexcept {
    if (!peer_memory_) {
        return EPERM;
    }
    return alive() ? peer_memory_.read(address, into) : ESRCH;
}

bool Link::alive() noexcept {
    if (state_ != State::open) {
        return false;
    }
    const std::uint64_t now = now_ns();
    if (now - alive_at_ < alive_cache_ns) {
        return true;
    }
    if (mailbox_.hung_up()) {
        return false;
    }
    alive_at_ = now;
    return true;
}

bool Link::delivers() noexcept {
    // Return false only for 'T' (stopped by a signal). A process that is busy, or that a debugger
    // has stopped ('t'), will consume the records later.
    return scheduling_state("/proc", pid_) != 'T';
}

int Link::share(std::uint32_t id, int fd, std::size_t length) noexcept {
    if (state_ != State::open) {
        return ESRCH;
    }
    if (id == 0 || length == 0) {
        return EINVAL;
    }
    if (fd < 0) {
        return EBADF;
    }
    try {
        if (!shares_.emplace(id, false).second) {
            return EEXIST;
        }
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
    Message message;
    message.kind = MessageKind::share;
    message.number = id;
    message.length = length;
    // Send a new, read-only descriptor, so that the other process cannot write to the memory. If
    // the file cannot be opened again, which is so for a dma-buf, send fd.
    std::array<char, 32> path{};
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
    const NoCancellation not_cancelled;
    const UniqueFd readable(::open(path.data(), O_RDONLY | O_CLOEXEC));
    const int error = mailbox_.send(message, readable ? readable.get() : fd);
    if (error != 0) {
        shares_.erase(id);
    }
    return error == EPIPE ? ESRCH : error;
}

void Link::unshare(std::uint32_t id) noexcept {
    if (state_ != State::open || shares_.erase(id) == 0) {
        return;
    }
    Message message;
    message.kind = MessageKind::unshare;
    message.number = id;
    send_or_cut(message);
}

void Link::send_or_cut(const Message& message) noexcept {
    const int error = mailbox_.send(message);
    // EPIPE means that the other process has closed the socket: service() detects this later and
    // closes the connection. After any other error the message is lost, so close the connection
    // now.
    if (error != 0 && error != EPIPE) {
        cut();
    }
}

void Link::service(Handler& handler) {
    flush(handler);
    ReceivedMessage received;
    for (unsigned count = 0; count < max_messages && state_ == State::open; ++count) {
        switch (receive(mailbox_.socket(), received)) {
            case Arrival::message:
                handle(received, handler);
                break;
            case Arrival::nothing:
                return;
            case Arrival::closed:
                hang_up();
                return;
            case Arrival::garbage:
                cut();
                return;
        }
    }
}

void Link::flush(Handler& handler) {
    int error = 0;
    while (state_ == State::open) {
        const auto failed = mailbox_.flush(error);
        if (!failed) {
            return;
        }
        if (shares_.erase(*failed) != 0) {
            ++context_.deliveries;
            handler.on_shared(*this, *failed, error);
        }
    }
}

void Link::handle(ReceivedMessage& received, Handler& handler) {
    const Message& message = received.message;
    switch (message.kind) {
        case MessageKind::hello:
            cut();
            break;
        case MessageKind::welcome:
            if (welcomed_) {
                cut();
                break;
            }
            welcomed_ = true;
            // Use the received file descriptor only if it is a valid doorbell (an eventfd).
            // Otherwise, this process continues to wake the other process with "poke" messages on
            // the socket.
            if (can_be_doorbell(received.descriptors[0])) {
                doorbell_ = std::move(received.descriptors[0]);
            }
            probe(message);
            break;
        case MessageKind::poke:
            break;
        case MessageKind::share:
            import(received);
            break;
        case MessageKind::shared:
            // Report the reply only if this process still shares the memory, and only once.
            if (const auto found = shares_.find(message.number);
                found != shares_.end() && !std::exchange(found->second, true)) {
                ++context_.deliveries;
                handler.on_shared(*this, message.number, static_cast<int>(message.error));
            }
            break;
        case MessageKind::unshare:
            pulled_.erase(message.number);
            break;
    }
}

void Link::import(ReceivedMessage& received) noexcept {
    const std::uint32_t number = received.message.number;
    if (!received.descriptors[0] && !received.truncated) {
        cut();
        return;
    }
    int error = 0;
    SharedFile file;
    if (!received.descriptors[0]) {
        error = EMFILE;
    } else if (pulled_.size() >= most_pulled) {
        error = ENOMEM;
    } else {
        error = file.map(std::move(received.descriptors[0]), received.message.length);
    }
    if (error == 0) {
        try {
            error = pulled_.emplace(number, std::move(file)).second ? 0 : EEXIST;
        } catch (const std::bad_alloc&) {
            error = ENOMEM;
        }
    }
    send_or_cut(make_reply(number, error));
}

} // namespace softverbs::fabric
