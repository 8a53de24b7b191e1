// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/remote_region.hpp>

#include "options.hpp"

namespace pingpong {

/// What both ends must have been started with. The memory is each end's own business.
struct Term {
    const char* name;
    std::string value;
};
[[nodiscard]] std::vector<Term> terms_of(const Options& options);

/// The terms and the memory of one end, as bytes: fits into the private data of a connection.
struct Hello {
    Verb verb = Verb::send;
    bool validate = false;
    std::uint64_t size = 0;
    std::uint32_t iterations = 0;
    std::uint32_t warmup = 0;
    rdmabuf::RemoteRegion region;

    static constexpr std::size_t wire_size = 24 + rdmabuf::RemoteRegion::wire_size;

    [[nodiscard]] static Hello from(const Options& options, const rdmabuf::RemoteRegion& region);
    [[nodiscard]] std::array<std::byte, wire_size> encode() const noexcept;
    /// @param bytes  may be longer: connection managers pad
    /// @throws rdmabuf::Error EPROTO for what no pingpong has sent
    [[nodiscard]] static Hello decode(std::span<const std::byte> bytes);
    /// @throws rdmabuf::Error EPROTO naming the first term that differs, and both values
    void check(const Options& ours) const;
};

} // namespace pingpong
