// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rdmabuf/error.hpp>

#include "base/file_descriptor.hpp"

namespace rdmabuf::detail {

struct FreeAddresses {
    void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
/// The addresses of a host, best first. At least one.
using HostAddresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// @param host  a name or an address, IPv4 or IPv6
/// @throws Error EINVAL when it has no address. getaddrinfo(3), which has its own time limits.
[[nodiscard]] HostAddresses resolve_host(const std::string& host, std::uint16_t port);

/// "192.0.2.1:4711" or "[2001:db8::1]:4711".
[[nodiscard]] std::string to_string(const sockaddr& address);

/// The one error that speaks for several, one for each address tried.
[[nodiscard]] Error combine(const std::vector<Error>& errors);

/// What @p attempt makes of the first address that it does not throw an Error for. Each address
/// gets an equal part of the time that those before it have left, so that one that does not answer
/// leaves time for the others.
template <class Attempt>
auto try_each(const HostAddresses& addresses, const Deadline& deadline, Attempt attempt) {
    std::size_t untried = 0;
    for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
        ++untried;
    }
    std::vector<Error> errors;
    for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
        try {
            return attempt(*each, deadline.part(untried--));
        } catch (const Error& error) {
            errors.push_back(error);
        }
    }
    throw combine(errors);
}

} // namespace rdmabuf::detail
