// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs::cm {

/// Copies @p size bytes from a program's address: false where the address is not mapped, and where
/// the kernel's copy_from_user() fails with EFAULT.
[[nodiscard]] bool copy_from_user(void* to, const void* from, std::size_t size) noexcept;
/// Copies to a program's address, which commands give as a number.
[[nodiscard]] bool copy_to_user(std::uint64_t to, const void* from, std::size_t size) noexcept;

} // namespace softverbs::cm
