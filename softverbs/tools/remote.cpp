// SPDX-License-Identifier: BSD-3-Clause
#include "remote.hpp"

#include <softverbs/softverbs.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>

namespace softverbs::tools {

namespace {

constexpr int failed = 1;

/// Sends a command and returns the reply. Returns an empty string and sets errno if the process
/// cannot be reached or does not reply within 10 seconds.
std::string exchange(int socket, const sockaddr_un& address, const std::string& command) {
    const timeval limit{10, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::array<char, 4096> reply{};
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::send(socket, command.data(), command.size(), MSG_NOSIGNAL) < 0) {
        return {};
    }
    const ssize_t size = ::recv(socket, reply.data(), reply.size(), 0);
    if (size == 0) {
        errno = ECONNRESET;
    }
    return {reply.data(), static_cast<std::size_t>(size > 0 ? size : 0)};
}

} // namespace

int send_command(int process, const std::string& command) {
    const char* const directory = softverbs_directory();
    if (directory == nullptr) {
        return failed; // the error is already printed
    }
    const std::string path = std::string(directory) + "/" + std::to_string(process) + ".control";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        std::cerr << "softverbs: " << path << " is too long for a socket; use a shorter --dir\n";
        return failed;
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const std::string reply = exchange(socket, address, command);
    const int error = errno;
    ::close(socket);
    if (reply.empty()) {
        std::cerr
            << "softverbs: process " << process << " does not answer at " << path << ": "
            << std::strerror(error)
            << "\nA process accepts commands after it has created a queue pair, if it has the "
               "same --dir.\n";
        return failed;
    }
    if (reply != "ok") {
        std::cerr << "softverbs: " << reply << "\n";
        return failed;
    }
    return 0;
}

} // namespace softverbs::tools
