// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/network_settings.hpp"

#include <fcntl.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fabric/network_interfaces.hpp"
#include "fabric/system_error.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

std::vector<std::byte> read_secret(const std::string& path) {
    const std::string file_name = "the secret file " + path;
    // O_NONBLOCK: if the path is a FIFO, open(2) does not wait for a writer.
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file) {
        throw_error(errno, file_name + " cannot be opened");
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) {
        throw_error(errno, file_name);
    }
    if (!S_ISREG(status.st_mode)) {
        throw_error(EINVAL, file_name + " is not a regular file");
    }
    if (status.st_uid != ::geteuid()) {
        throw_error(EACCES, file_name + " belongs to user " + std::to_string(status.st_uid) +
                                "; it has to belong to the user of the program");
    }
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        throw_error(EACCES, file_name + " is accessible to other users; chmod 600 it");
    }
    std::vector<std::byte> secret(longest_secret + 1);
    std::size_t length = 0;
    while (length < secret.size()) {
        const ssize_t read = ::read(file.get(), secret.data() + length, secret.size() - length);
        if (read < 0 && errno == EINTR) {
            continue;
        }
        if (read < 0) {
            throw_error(errno, file_name + " cannot be read");
        }
        if (read == 0) {
            break;
        }
        length += static_cast<std::size_t>(read);
    }
    if (length < shortest_secret || length > longest_secret) {
        throw_error(EINVAL, file_name + " has to have " + std::to_string(shortest_secret) + " to " +
                                std::to_string(longest_secret) +
                                " bytes; make one with: head -c 32 /dev/urandom >" + path);
    }
    secret.resize(length);
    return secret;
}

std::vector<HostAddress> addresses_of_this_host() {
    std::vector<HostAddress> addresses;
    const bool listed = for_each_interface_address([&addresses](const ifaddrs& entry) {
        const auto address = host_of(*entry.ifa_addr);
        if ((entry.ifa_flags & IFF_UP) != 0 && address && is_global(*address)) {
            addresses.push_back(*address);
        }
    });
    if (!listed) {
        throw_error(errno, "the addresses of this host cannot be listed");
    }
    std::stable_partition(addresses.begin(), addresses.end(), is_ipv4);
    return addresses;
}

} // namespace softverbs::fabric
