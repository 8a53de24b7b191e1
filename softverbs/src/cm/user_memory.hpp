// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs::cm {

/// Copies @p size bytes from memory of the program. Returns false if the address is invalid; the
/// command then fails with EFAULT, as in the kernel.
[[nodiscard]] bool copy_from_user(void* to, const void* from, std::size_t size) noexcept;
/// Copies @p size bytes to memory of the program at the address @p to. Returns false if the address
/// is invalid.
[[nodiscard]] bool copy_to_user(std::uint64_t to, const void* from, std::size_t size) noexcept;

} // namespace softverbs::cm
