// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

#include <rdmabuf/context.hpp>

namespace rdmabuf {

Gid Gid::from_native(const union ibv_gid& gid) noexcept {
    Gid result;
    std::memcpy(result.bytes.data(), gid.raw, result.bytes.size());
    return result;
}

union ibv_gid Gid::native() const noexcept {
    union ibv_gid gid {};
    std::memcpy(gid.raw, bytes.data(), bytes.size());
    return gid;
}

bool Gid::is_ipv4_mapped() const noexcept {
    constexpr std::array<std::uint8_t, 12> prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(prefix.begin(), prefix.end(), bytes.begin());
}

bool Gid::is_link_local() const noexcept {
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

bool Gid::is_zero() const noexcept {
    return *this == Gid{};
}

std::string to_string(const Gid& gid) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    // inet_ntop(3) cannot fail here: the address family is valid and the buffer is large enough.
    inet_ntop(AF_INET6, gid.bytes.data(), text.data(), text.size());
    return text.data();
}

const char* to_string(GidType type) noexcept {
    switch (type) {
        case GidType::infiniband:
            return "IB";
        case GidType::roce_v1:
            return "RoCE v1";
        case GidType::roce_v2:
            return "RoCE v2";
    }
    return "unknown";
}

} // namespace rdmabuf
