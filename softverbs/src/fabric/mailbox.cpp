// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/mailbox.hpp"

#include <fcntl.h>
#include <sys/epoll.h>

#include <cerrno>
#include <new>
#include <span>

#include "fabric/event_source.hpp"
#include "fabric/uncancellable.hpp"

namespace softverbs::fabric {
namespace {

/// A "share" message, which shares memory with the other process, is not queued if this number of
/// messages of any kind is already queued. Connection::share() then returns EAGAIN.
constexpr std::size_t most_offers_waiting = 256;
/// Maximum number of messages that are queued for the socket. It is higher than the limit for
/// "share" messages, because the loss of a message of another kind closes the connection.
constexpr std::size_t most_waiting = std::size_t{64} * 1024;

int post_one(int socket, const Message& message, const int& descriptor) noexcept {
    return post(socket, message, std::span<const int>(&descriptor, descriptor >= 0 ? 1 : 0));
}

} // namespace

int Mailbox::send(const Message& message, int descriptor) noexcept {
    const NoCancellation not_cancelled;
    if (waiting_.empty()) {
        const int error = post_one(socket_.get(), message, descriptor);
        if (error != EAGAIN) {
            return error;
        }
    }
    const bool offer = message.kind == MessageKind::share;
    if (waiting_.size() >= (offer ? most_offers_waiting : most_waiting)) {
        return EAGAIN;
    }
    UniqueFd copy;
    if (descriptor >= 0) {
        copy.reset(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
        if (!copy) {
            return errno;
        }
    }
    try {
        waiting_.push_back({message, std::move(copy)});
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
    watch_room(true);
    return 0;
}

std::optional<std::uint32_t> Mailbox::flush(int& error) noexcept {
    if (waiting_.empty()) {
        return std::nullopt;
    }
    while (!waiting_.empty()) {
        const Waiting& next = waiting_.front();
        error = post_one(socket_.get(), next.message, next.descriptor.get());
        if (error == EAGAIN) {
            return std::nullopt;
        }
        const std::uint32_t number = next.message.number;
        const bool offer = next.message.kind == MessageKind::share;
        waiting_.pop_front();
        if (error != 0 && offer) {
            return number;
        }
    }
    watch_room(false);
    return std::nullopt;
}

void Mailbox::watch_room(bool wanted) noexcept {
    watch(epoll_, socket_.get(), EventSource::link,
          EPOLLIN | (wanted ? std::uint32_t{EPOLLOUT} : 0));
}

bool Mailbox::hung_up() const noexcept {
    return (poll_now(socket_.get(), POLLRDHUP) & (POLLRDHUP | POLLHUP)) != 0;
}

void Mailbox::detach() noexcept {
    stop_watching(epoll_, socket_.get());
}

} // namespace softverbs::fabric
