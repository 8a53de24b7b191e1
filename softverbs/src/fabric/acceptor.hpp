// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "fabric/message.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Accepts connections from processes of this host, and keeps each socket until its first message
/// arrives.
class Acceptor {
  public:
    /// Callback for the first message of a process. It moves @p socket away if it accepts the
    /// process. It may throw std::bad_alloc.
    using OnHello = std::function<void(UniqueFd& socket, pid_t pid, ReceivedMessage& first)>;

    /// @param listener  a listening socket, which must outlive this object
    /// @param epoll     the epoll in which the sockets of clients are registered, with
    ///         EventSource::client
    /// @throws std::system_error  EMFILE
    Acceptor(int listener, int epoll);

    /// Accepts the pending connections.
    void accept(const OnHello& on_hello);
    /// Receives the first message of the client with this socket.
    void read(int socket, const OnHello& on_hello);
    /// For the child after fork(2): closes the descriptors.
    void abandon() noexcept;

  private:
    struct Client {
        UniqueFd socket;
        pid_t pid;
    };

    /// Accepts and closes one pending connection when the process has reached its limit of
    /// descriptors. Returns false if no connection was pending.
    [[nodiscard]] bool reject() noexcept;
    /// Receives the first message of a client. Returns true if the client must be dropped from the
    /// list.
    [[nodiscard]] bool receive_hello(Client& client, const OnHello& on_hello);
    void drop(std::vector<Client>::iterator client);

    int listener_;
    int epoll_;
    /// A descriptor that is closed temporarily, so that a connection can be accepted and rejected
    /// when the process has reached its limit of descriptors.
    UniqueFd spare_;
    std::vector<Client> clients_;
};

} // namespace softverbs::fabric
