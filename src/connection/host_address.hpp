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
/// The addresses of a host, in the order of preference of getaddrinfo(3); null for no address.
using HostAddresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// Resolves a host name. The duration of the call is limited only by the timeouts of the resolver:
/// resolv.conf(5).
/// @param host  a name, or an IPv4 or IPv6 address
/// @throws Error EINVAL if the host has no address
[[nodiscard]] HostAddresses resolve_host(const std::string& host, std::uint16_t port);

/// Formats the IP address and the port: "192.0.2.1:4711" or "[2001:db8::1]:4711".
[[nodiscard]] std::string to_string(const sockaddr& address);

/// Combines the errors of several addresses of a host into one Error, whose hint lists all of them.
/// Its errno value is ECONNREFUSED if one of the errors is ECONNREFUSED, otherwise ETIMEDOUT if one
/// is ETIMEDOUT, otherwise that of the last error. A single error is returned unchanged.
/// @param errors  must not be empty
[[nodiscard]] Error combine(const std::vector<Error>& errors);

/// Calls @p attempt for one address after the other until one call succeeds. The remaining time is
/// divided equally among the remaining addresses, so that an address that does not respond leaves
/// time for the next addresses.
/// @param addresses  must not be null
/// @return the result of the successful call
/// @throws Error the result of combine(), if every call has thrown an Error
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
