// SPDX-License-Identifier: BSD-3-Clause
#include "connection/host_address.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace rdmabuf::detail {

HostAddresses resolve_host(const std::string& host, std::uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int result = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    HostAddresses addresses(result == 0 ? list : nullptr);
    if (addresses == nullptr) {
        const std::string reason =
            result == EAI_SYSTEM ? describe_errno(errno) : std::string(::gai_strerror(result));
        throw Error(EINVAL, "getaddrinfo",
                    "the host " + quote(host) + " has no address: " + reason);
    }
    return addresses;
}

std::string to_string(const sockaddr& address) {
    const bool is_v6 = address.sa_family == AF_INET6;
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    const int result =
        ::getnameinfo(&address, is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in), host.data(),
                      host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
    if (result != 0) {
        return "an address of family " + std::to_string(address.sa_family);
    }
    const std::string name = host.data();
    return (is_v6 ? "[" + name + "]" : name) + ":" + port.data();
}

Error combine(const std::vector<Error>& errors) {
    const auto find = [&](int error) {
        return std::find_if(errors.begin(), errors.end(),
                            [&](const Error& each) { return each.error() == error; });
    };
    // The combined error is based on the first ECONNREFUSED, because this error shows that a host
    // has responded. If there is none, it is based on the first ETIMEDOUT, or else on the last
    // error.
    auto telling = find(ECONNREFUSED);
    if (telling == errors.end()) {
        telling = find(ETIMEDOUT);
    }
    if (telling == errors.end()) {
        telling = std::prev(errors.end());
    }
    if (errors.size() == 1) {
        return *telling;
    }
    std::string hint = "none of " + std::to_string(errors.size()) + " addresses worked:";
    for (const Error& each : errors) {
        hint.append(&each == errors.data() ? " " : "; ").append(each.what());
    }
    return {telling->error(), telling->function(), hint};
}

} // namespace rdmabuf::detail
