// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "fabric/message.hpp"
#include "fabric/spare_descriptor.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Accepts connections from clients (other processes of this host). Owns the socket of each client
/// until this process has received the first message of the client.
class Acceptor {
  public:
    /// Callback for the first message that a client (another process of this host) has sent. To
    /// accept the client, the callback takes ownership of @p socket. If it does not, the Acceptor
    /// closes the connection. The callback may throw std::bad_alloc.
    using OnHello = std::function<void(UniqueFd& socket, pid_t pid, ReceivedMessage& first)>;

    /// @param listener  a listening Unix socket, which must outlive this object
    /// @param epoll  the epoll instance to which the sockets of clients are added, with
    ///     EventSource::client
    /// @throws std::system_error  if /dev/null cannot be opened for the SpareDescriptor, for
    ///     example EMFILE
    Acceptor(int listener, int epoll);

    /// Accepts pending connections of clients (other processes of this host), at most 64 in one
    /// call. Calls @p on_hello for each client whose first message has already arrived.
    void accept(const OnHello& on_hello);
    /// If the first message of the client (another process of this host) that is connected to
    /// @p socket has arrived, receives it and calls @p on_hello with it.
    void read(int socket, const OnHello& on_hello);
    /// Called in a child process after fork(2). Closes the file descriptors that the child process
    /// has inherited from this object.
    void abandon() noexcept;

  private:
    struct Client {
        UniqueFd socket;
        pid_t pid;
    };

    /// Receives the first message of a client (another process of this host), if it has arrived.
    /// Returns true if the client must be removed from clients_, because the message has arrived or
    /// the connection has failed.
    [[nodiscard]] bool receive_hello(Client& client, const OnHello& on_hello);
    void drop(std::vector<Client>::iterator client);

    int listener_;
    int epoll_;
    SpareDescriptor spare_;
    std::vector<Client> clients_;
};

} // namespace softverbs::fabric
