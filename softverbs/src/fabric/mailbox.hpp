// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "fabric/message.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// The socket of a connection, and the messages that it does not take just now.
class Mailbox {
  public:
    /// @param socket  in @p epoll already, for EPOLLIN with the data @p tag
    Mailbox(UniqueFd socket, int epoll, std::uint64_t tag) noexcept
        : socket_(std::move(socket)), epoll_(epoll), tag_(tag) {}

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }

    /// Sends a message, now or later. The caller keeps @p descriptor, which may be -1. 0 or an
    /// errno: EAGAIN (too many wait already), EMFILE, ENOMEM, EPIPE, ETOOMANYREFS.
    [[nodiscard]] int send(const Message& message, int descriptor = -1) noexcept;

    /// Sends what waits, as far as it goes. The number of an offer of memory that could not be made
    /// after all, with the errno in @p error: call again.
    [[nodiscard]] std::optional<std::uint32_t> flush(int& error) noexcept;

    /// Whether the other side has closed the socket or is gone.
    [[nodiscard]] bool hung_up() const noexcept;
    /// No events from now on.
    void detach() noexcept;

  private:
    struct Waiting {
        Message message;
        UniqueFd descriptor;
    };

    void watch_room(bool wanted) noexcept;

    UniqueFd socket_;
    int epoll_;
    std::uint64_t tag_;
    std::deque<Waiting> waiting_;
};

} // namespace softverbs::fabric
