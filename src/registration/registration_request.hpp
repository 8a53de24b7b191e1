// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <rdmabuf/registration.hpp>

namespace rdmabuf::detail {

/// A request to register one range. Refers to the arguments of the caller, which must outlive this
/// object.
struct RegistrationRequest {
    std::span<const ProtectionDomain> pds;
    const Resolver& resolver;
    std::uintptr_t address;
    std::size_t length;
    const RegistrationOptions& options;
    /// The maximum size of a piece in bytes, a multiple of the page size; 0: one piece.
    std::size_t chunk;
    /// The name of the public function that received the request, for error texts.
    const char* function;

    /// Returns the access flags, including relaxed ordering if the options request it.
    [[nodiscard]] Access access() const noexcept;
    /// Returns the iova of the first byte of the range.
    [[nodiscard]] std::uint64_t iova() const noexcept;
    /// Returns the range as text, for example "4096 bytes at 0x1000".
    [[nodiscard]] std::string describe() const;
};

/// Checks the arguments and options of a request.
/// @throws Error EINVAL with the reason, for an empty list of protection domains, a length of 0, a
/// range that overflows, and options that contradict each other
void check_request(const RegistrationRequest& request);

} // namespace rdmabuf::detail
