// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "fabric/message.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// The Unix socket of a connection, with a queue for messages that did not fit into the full
/// socket.
class Mailbox {
  public:
    /// @param socket  a socket that is in the epoll instance @p epoll as EventSource::link
    Mailbox(UniqueFd socket, int epoll) noexcept : socket_(std::move(socket)), epoll_(epoll) {}

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }

    /// Sends a message, or queues it if the socket is full or earlier messages are queued. If the
    /// file descriptor @p descriptor is not -1, sends it with the message; the caller still owns
    /// it. Returns 0 or an errno: EAGAIN (the queue is full), EMFILE, ENOMEM, EPIPE (the other
    /// process has closed the socket), ETOOMANYREFS (too many file descriptors are in messages that
    /// were not received yet).
    [[nodiscard]] int send(const Message& message, int descriptor = -1) noexcept;

    /// Sends queued messages until the queue is empty or the socket is full. If a "share" message
    /// (which shares memory with the other process) cannot be sent, returns the id of this memory
    /// and stores the errno in @p error; the caller must then call flush() again. Otherwise returns
    /// no value. Other messages that cannot be sent are dropped.
    [[nodiscard]] std::optional<std::uint32_t> flush(int& error) noexcept;

    /// Returns whether the other process has closed the socket or has ended.
    [[nodiscard]] bool hung_up() const noexcept;
    /// Removes the socket from the epoll instance.
    void detach() noexcept;

  private:
    struct Waiting {
        Message message;
        UniqueFd descriptor;
    };

    void watch_room(bool wanted) noexcept;

    UniqueFd socket_;
    int epoll_;
    std::deque<Waiting> waiting_;
};

} // namespace softverbs::fabric
