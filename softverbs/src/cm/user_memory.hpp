// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs::cm {

/// Copies @p size bytes from an address of the program. Returns false if the address is not mapped,
/// where the kernel's copy_from_user() would fail with EFAULT.
[[nodiscard]] bool copy_from_user(void* to, const void* from, std::size_t size) noexcept;
/// Copies @p size bytes to an address of the program, which commands contain as a number.
[[nodiscard]] bool copy_to_user(std::uint64_t to, const void* from, std::size_t size) noexcept;

} // namespace softverbs::cm
