// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <softverbs/softverbs.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "subcommands.hpp"

namespace softverbs::tools {

namespace {

constexpr int failed = 1;

/// Repeats a system call that a signal interrupted. After SIGSTOP and SIGCONT, a call on a socket
/// with a time limit fails with EINTR, see signal(7).
template <class Call>
ssize_t repeat_if_interrupted(const Call& call) {
    ssize_t result = -1;
    do {
        result = call();
    } while (result < 0 && errno == EINTR);
    return result;
}

/// Sends a command to a running process and returns its reply. On failure, returns an empty string
/// and sets errno. The errno is EAGAIN if the process does not accept the connection or does not
/// reply within 5 seconds.
std::string exchange(int socket, const sockaddr_un& address, const std::string& command) {
    const timeval limit{5, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); // also limits connect(2)
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::array<char, 4096> reply{};
    const auto* const name = reinterpret_cast<const sockaddr*>(&address);
    if (repeat_if_interrupted([&] { return ::connect(socket, name, sizeof address); }) != 0 ||
        repeat_if_interrupted(
            [&] { return ::send(socket, command.data(), command.size(), MSG_NOSIGNAL); }) < 0) {
        return {};
    }
    const ssize_t size =
        repeat_if_interrupted([&] { return ::recv(socket, reply.data(), reply.size(), 0); });
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
    const std::string name = std::to_string(process) + ".control";
    const std::string path = std::string(directory) + "/" + name;
    // Use a path in /proc/self/fd, because the path of the rendezvous directory may be too long for
    // a socket address.
    const int opened = ::open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const std::string short_path = "/proc/self/fd/" + std::to_string(opened) + "/" + name;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, short_path.c_str(),
                std::min(short_path.size() + 1, sizeof address.sun_path - 1));
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const std::string reply = exchange(socket, address, command);
    const int error = errno;
    ::close(socket);
    ::close(opened);
    if (reply.empty() && error == EAGAIN) {
        std::cerr << "softverbs: process " << process << " does not reply at " << path
                  << ": the process is stopped, or does not read its commands\n";
        return failed;
    }
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
