// SPDX-License-Identifier: BSD-3-Clause
#include "control/socket_file.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "fabric/report.hpp"

namespace softverbs::control {

using fabric::UniqueFd;

namespace {

/// Returns whether the process exists whose PID is in the name of the socket file @p socket. Finds
/// only processes in the PID namespace of this process.
bool owner_exists(const std::filesystem::path& socket) {
    const std::string number = socket.stem();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), pid);
    return error == std::errc() && pid > 0 && (::kill(pid, 0) == 0 || errno != ESRCH);
}

} // namespace

void remove_unused_sockets(const fabric::Rendezvous& directory) {
    std::error_code error;
    const std::string path = "/proc/self/fd/" + std::to_string(directory.fd());
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename();
        constexpr std::size_t longest_name = 32;
        if (!name.ends_with(".control") || name.size() > longest_name || owner_exists(name)) {
            continue;
        }
        socklen_t length = 0;
        const sockaddr_un address = directory.address(name.c_str(), length);
        const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (socket &&
            ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 &&
            errno == ECONNREFUSED) {
            ::unlinkat(directory.fd(), name.c_str(), 0);
        }
    }
}

UniqueFd listen_on_socket(const fabric::Rendezvous& directory, const std::string& name) {
    // Listen under a temporary name, and then rename the socket file. Otherwise another process
    // could remove the file, with remove_unused_sockets(), between bind() and listen().
    const std::string unfinished = name + ".new";
    socklen_t length = 0;
    const sockaddr_un address = directory.address(unfinished.c_str(), length);
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::unlinkat(directory.fd(), unfinished.c_str(), 0);
    if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(socket.get(), 8) != 0 ||
        ::renameat(directory.fd(), unfinished.c_str(), directory.fd(), name.c_str()) != 0) {
        fabric::report("this process accepts no commands of softverbs fault and softverbs port: " +
                       directory.path() + "/" + name + ": " + std::strerror(errno));
        return {};
    }
    return socket;
}

} // namespace softverbs::control
