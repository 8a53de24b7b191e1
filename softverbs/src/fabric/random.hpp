// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/random.h>

#include <concepts>
#include <cstddef>
#include <span>

namespace softverbs::fabric {

/// Fills @p bytes with random bytes from the kernel. Returns false if getrandom(2) fails.
/// @param flags  flags of getrandom(2); with GRND_NONBLOCK, the call fails instead of waiting if
///     the machine has just started
[[nodiscard]] inline bool fill_random(std::span<std::byte> bytes, unsigned flags = 0) noexcept {
    return ::getrandom(bytes.data(), bytes.size(), flags) == static_cast<ssize_t>(bytes.size());
}

/// Returns a random number, or @p otherwise if getrandom(2) fails. The number must not be used as a
/// secret.
/// @param flags  flags of getrandom(2), as for fill_random()
template <std::unsigned_integral Number>
[[nodiscard]] Number random_number(Number otherwise, unsigned flags = 0) noexcept {
    Number number = 0;
    return fill_random(std::as_writable_bytes(std::span(&number, 1)), flags) ? number : otherwise;
}

} // namespace softverbs::fabric
