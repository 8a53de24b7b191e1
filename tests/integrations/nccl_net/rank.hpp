// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "net.hpp"

namespace nccl_net_test {

/// What goes over one connection: groups of messages, which both of its ends know by its number.
struct Plan {
    struct Message {
        int tag;
        std::size_t size;
    };
    static constexpr std::size_t groups = 30;
    static constexpr std::size_t most = 8;
    static constexpr std::size_t room = 98304;

    explicit Plan(unsigned which);

    /// The byte at @p i of a message.
    [[nodiscard]] std::byte byte(std::size_t group, std::size_t message, std::size_t i) const;

    unsigned number;
    std::vector<std::vector<Message>> messages;
};

/// A rank of two that talk over many connections, both ways at once, as a proxy thread of NCCL's
/// does it: asks again for what was not ready, and tests what it has in any order. What it receives
/// is compared byte for byte.
class Rank {
  public:
    /// @param socket  to the other rank, for the handles: what NCCL's bootstrap does. Not owned.
    Rank(Net& net, int socket, unsigned rank, unsigned connections);
    ~Rank();
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    /// Connects, talks and closes. @throws std::runtime_error what went wrong
    void run();

  private:
    class Sending;
    class Receiving;

    void connect();

    Net& net_;
    int socket_;
    unsigned rank_;
    unsigned connections_;
    std::vector<std::unique_ptr<Sending>> sending_;
    std::vector<std::unique_ptr<Receiving>> receiving_;
};

} // namespace nccl_net_test
