// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <stdexcept>

/// Sends bytes to the process at the other end of a socket.
inline void send_all(int socket, std::span<const std::byte> bytes) {
    if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
        throw std::runtime_error("the other process has ended");
    }
}
inline void receive_all(int socket, std::span<std::byte> bytes) {
    if (::recv(socket, bytes.data(), bytes.size(), MSG_WAITALL) !=
        static_cast<ssize_t>(bytes.size())) {
        throw std::runtime_error("the other process has ended");
    }
}
/// Returns true if the process at the other end has closed the socket.
[[nodiscard]] inline bool is_closed(int socket) {
    char byte = 0;
    return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}
