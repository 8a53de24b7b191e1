// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/network_settings.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {
namespace {

[[noreturn]] void fail(int error, const std::string& what) {
    throw std::system_error(error, std::system_category(), what);
}

} // namespace

std::vector<std::byte> read_secret(const std::string& path) {
    const std::string file_name = "the secret file " + path;
    // With O_NONBLOCK, opening a FIFO does not block.
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file) {
        fail(errno, file_name + " cannot be opened");
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) {
        fail(errno, file_name);
    }
    if (!S_ISREG(status.st_mode)) {
        fail(EINVAL, file_name + " is not a regular file");
    }
    if (status.st_uid != ::geteuid()) {
        fail(EACCES, file_name + " belongs to user " + std::to_string(status.st_uid) +
                         "; it has to belong to the user of the program");
    }
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        fail(EACCES, file_name + " is accessible to other users; chmod 600 it");
    }
    std::vector<std::byte> secret(longest_secret + 1);
    std::size_t length = 0;
    while (length < secret.size()) {
        const ssize_t read = ::read(file.get(), secret.data() + length, secret.size() - length);
        if (read < 0 && errno == EINTR) {
            continue;
        }
        if (read < 0) {
            fail(errno, file_name + " cannot be read");
        }
        if (read == 0) {
            break;
        }
        length += static_cast<std::size_t>(read);
    }
    if (length < shortest_secret || length > longest_secret) {
        fail(EINVAL, file_name + " has to have " + std::to_string(shortest_secret) + " to " +
                         std::to_string(longest_secret) +
                         " bytes; make one with: head -c 32 /dev/urandom >" + path);
    }
    secret.resize(length);
    return secret;
}

std::vector<HostAddress> addresses_of_this_host() {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) {
        fail(errno, "the addresses of this host cannot be listed");
    }
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    std::vector<HostAddress> addresses;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        const auto address = host_of(*entry->ifa_addr);
        if (address && is_global(*address)) {
            addresses.push_back(*address);
        }
    }
    std::stable_partition(addresses.begin(), addresses.end(), is_ipv4);
    return addresses;
}

} // namespace softverbs::fabric
