// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fabric/link_memory.hpp"
#include "fabric/message.hpp"
#include "fabric/unique_fd.hpp"
#include "support.hpp"

namespace softverbs::fabric::testing {

/// A connection to the socket of a node, by which a test can send any message.
class RawSocket {
  public:
    explicit RawSocket(const Node& node);

    /// Sends one message with these bytes and descriptors.
    void say(std::span<const std::byte> bytes, std::span<const int> descriptors = {}) const;
    void say(const Message& message, std::span<const int> descriptors = {}) const {
        say(std::as_bytes(std::span(&message, 1)), descriptors);
    }
    /// Returns whether the node has closed the connection.
    [[nodiscard]] bool closed() const;
    /// Returns the next message. Its kind is 0 if there is none.
    [[nodiscard]] Message hear() const;

  private:
    UniqueFd socket_;
};

/// The objects that a real node would have: a socket, rings, a doorbell and a valid hello message.
struct Impostor {
    /// Also listens in slot @p slot, unless another process does.
    Impostor(const Node& node, unsigned slot, const RingSizes& sizes = {16384, 8192});
    Impostor(const Impostor&) = delete;
    Impostor& operator=(const Impostor&) = delete;
    ~Impostor();

    /// Returns the descriptors for the hello message.
    [[nodiscard]] std::vector<int> descriptors() const { return {file.get(), doorbell.get()}; }
    /// Sends a valid hello message.
    void greet() const { socket.say(hello, descriptors()); }

    RawSocket socket;
    UniqueFd file;
    LinkMemory memory;
    UniqueFd doorbell;
    Message hello;

  private:
    UniqueFd listener_;
    std::string path_;
};

} // namespace softverbs::fabric::testing
