// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::testing {

/// The other end of a TCP connection on this machine, for tests that send arbitrary bytes.
/// Its calls wait for ten seconds at most.
class RawPeer {
  public:
    [[nodiscard]] static RawPeer connect(std::uint16_t port);
    explicit RawPeer(UniqueFd socket);

    void send(std::span<const std::byte> bytes) const;
    void send(std::string_view text) const;
    /// Receives the next @p size bytes, or fewer at the end of the connection.
    [[nodiscard]] std::vector<std::byte> receive(std::size_t size) const;
    /// Returns the number of bytes that have arrived and receive() has not returned, at most 1024.
    /// Does not wait.
    [[nodiscard]] std::size_t available() const;
    /// Closes with a reset, as a process that ends with unread data does.
    void reset();
    void close() { socket_.reset(); }

  private:
    UniqueFd socket_;
};

/// Accepts the connection of an end under test as a RawPeer.
class RawListener {
  public:
    RawListener();
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    [[nodiscard]] RawPeer accept() const;

  private:
    UniqueFd socket_;
    std::uint16_t port_ = 0;
};

/// Returns the first bytes that a bootstrap of this version sends.
[[nodiscard]] std::vector<std::byte> good_greeting();
/// Returns a bootstrap message in its wire format.
[[nodiscard]] std::vector<std::byte> frame(std::uint8_t kind, std::string_view payload);

} // namespace rdmabuf::testing
