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

/// Who speaks to a node's socket without being a node.
class RawSocket {
  public:
    explicit RawSocket(const Node& node);

    /// Sends bytes as one message, with descriptors.
    void say(std::span<const std::byte> bytes, std::span<const int> descriptors = {}) const;
    void say(const Message& message, std::span<const int> descriptors = {}) const {
        say(std::as_bytes(std::span(&message, 1)), descriptors);
    }
    /// Whether the node has closed the connection.
    [[nodiscard]] bool closed() const;
    /// The next message; its kind is 0 where there is none.
    [[nodiscard]] Message hear() const;

  private:
    UniqueFd socket_;
};

/// What a node would have sent in its place: rings, a doorbell, and a hello that fits.
struct Impostor {
    /// Listens in slot @p slot, unless a process listens there already.
    Impostor(const Node& node, unsigned slot, const RingSizes& sizes = {16384, 8192});
    Impostor(const Impostor&) = delete;
    Impostor& operator=(const Impostor&) = delete;
    ~Impostor();

    /// The descriptors of a hello.
    [[nodiscard]] std::vector<int> descriptors() const { return {file.get(), doorbell.get()}; }
    /// Says hello as it should be.
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
