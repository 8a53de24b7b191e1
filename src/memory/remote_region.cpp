// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <limits>

#include <rdmabuf/remote_region.hpp>

#include "base/wire_format.hpp"
#include "memory/checks.hpp"

namespace rdmabuf {
namespace {
constexpr detail::WireHeader region_header{{'R', 'D', 'R', 'G'}, 1};
} // namespace

RemoteRegion RemoteRegion::slice(std::uint64_t offset, std::uint64_t count) const {
    detail::check_inside(offset, count, length, "RemoteRegion::slice", "the remote region");
    return {.address = address + offset, .length = count, .rkey = rkey};
}

std::array<std::byte, RemoteRegion::wire_size> RemoteRegion::encode() const noexcept {
    std::array<std::byte, wire_size> bytes{};
    detail::WireWriter writer(bytes, region_header);
    writer.put(std::uint16_t{0}); // reserved
    writer.put(rkey);
    writer.put(address);
    writer.put(length);
    return bytes;
}

Result<RemoteRegion> RemoteRegion::decode(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() != wire_size) {
        return ErrorInfo{EMSGSIZE, "decode",
                         bytes.size() < wire_size ? "a remote region has 28 bytes: truncated"
                                                  : "a remote region has 28 bytes: more follow"};
    }
    detail::WireReader reader(bytes);
    if (const auto problem = reader.check(region_header); problem.error() != 0) {
        return problem;
    }
    if (reader.get<std::uint16_t>() != 0) {
        return ErrorInfo{EPROTO, "decode", "reserved bytes are set"};
    }
    RemoteRegion region;
    region.rkey = reader.get<std::uint32_t>();
    region.address = reader.get<std::uint64_t>();
    region.length = reader.get<std::uint64_t>();
    if (region.length > std::numeric_limits<std::uint64_t>::max() - region.address) {
        return ErrorInfo{EPROTO, "decode", "address + length overflows 64 bits"};
    }
    return region;
}

} // namespace rdmabuf
