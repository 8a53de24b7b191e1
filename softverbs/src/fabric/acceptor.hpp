// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "fabric/message.hpp"
#include "fabric/spare_descriptor.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Accepts connections from other processes of this host. Owns the socket of each client until the
/// first message of the client has been received.
class Acceptor {
  public:
    /// Callback for the first message of a client. To accept the client, the callback takes
    /// ownership of @p socket. Otherwise, the connection is closed. The callback may throw
    /// std::bad_alloc.
    using OnHello = std::function<void(UniqueFd& socket, pid_t pid, ReceivedMessage& first)>;

    /// @param listener  a listening socket, which must outlive this object
    /// @param epoll     the epoll in which the sockets of clients are registered, with
    ///         EventSource::client
    /// @throws std::system_error  EMFILE
    Acceptor(int listener, int epoll);

    /// Accepts pending connections, at most 64 in one call. Calls @p on_hello for each client whose
    /// first message has already arrived.
    void accept(const OnHello& on_hello);
    /// Receives the first message of the client that is connected to @p socket, and passes the
    /// message to @p on_hello.
    void read(int socket, const OnHello& on_hello);
    /// Called in a child process after fork(2). Closes the descriptors of this object.
    void abandon() noexcept;

  private:
    struct Client {
        UniqueFd socket;
        pid_t pid;
    };

    /// Receives the first message of a client, if it has arrived. Returns true if the client must
    /// be removed from clients_.
    [[nodiscard]] bool receive_hello(Client& client, const OnHello& on_hello);
    void drop(std::vector<Client>::iterator client);

    int listener_;
    int epoll_;
    SpareDescriptor spare_;
    std::vector<Client> clients_;
};

} // namespace softverbs::fabric
