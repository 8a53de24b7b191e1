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

/// The other end of a TCP connection on this machine, which says what a test wants it to say. It
/// waits for ten seconds at most.
class RawPeer {
  public:
    [[nodiscard]] static RawPeer connect(std::uint16_t port);
    explicit RawPeer(UniqueFd socket);

    void say(std::span<const std::byte> bytes) const;
    void say(std::string_view text) const;
    /// What comes next; less than @p size at the end of the connection.
    [[nodiscard]] std::vector<std::byte> hear(std::size_t size) const;
    /// The number of bytes that have arrived and were not heard, at most 1024. Does not wait.
    [[nodiscard]] std::size_t heard_already() const;
    /// Closes with a reset, as a process that ends with unread data does.
    void reset();
    void close() { socket_.reset(); }

  private:
    UniqueFd socket_;
};

/// Where a RawPeer comes from when the bootstrap connects.
class RawListener {
  public:
    RawListener();
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    [[nodiscard]] RawPeer accept() const;

  private:
    UniqueFd socket_;
    std::uint16_t port_ = 0;
};

/// What a bootstrap of this version says first.
[[nodiscard]] std::vector<std::byte> good_greeting();
/// A message as it is on the wire.
[[nodiscard]] std::vector<std::byte> frame(std::uint8_t kind, std::string_view payload);

} // namespace rdmabuf::testing
