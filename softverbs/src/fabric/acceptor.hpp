// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "fabric/message.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Accepts the processes of this host that connect to a node, and holds the socket of each until
/// its first message arrives.
class Acceptor {
  public:
    /// Receives a process with its first message, and takes the socket where it admits the process.
    /// May throw std::bad_alloc.
    using Admit = std::function<void(UniqueFd& socket, pid_t pid, ReceivedMessage& first)>;

    /// @param listener  a listening socket, which outlives the object
    /// @param epoll     gets the sockets of clients, with the source client
    /// @throws std::system_error EMFILE
    Acceptor(int listener, int epoll);

    /// Accepts what has connected.
    void accept(const Admit& admit);
    /// Reads from the client with this socket.
    void read(int socket, const Admit& admit);
    /// For the child after fork(2): closes the descriptors.
    void abandon() noexcept;

  private:
    struct Client {
        UniqueFd socket;
        pid_t pid;
    };

    /// Accepts a connection and closes it, without a descriptor to spare. False: none was there.
    [[nodiscard]] bool reject() noexcept;
    /// Admits a client whose first message is there. True: the client has to be dropped.
    [[nodiscard]] bool greet(Client& client, const Admit& admit);
    void drop(std::vector<Client>::iterator client);

    int listener_;
    int epoll_;
    /// Closed for a moment to accept a connection that is rejected for want of descriptors.
    UniqueFd spare_;
    std::vector<Client> clients_;
};

} // namespace softverbs::fabric
