// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmabuf::detail {

/// Returns the page size of the running kernel in bytes: 4, 16 or 64 KiB.
[[nodiscard]] std::size_t page_size() noexcept;

/// Returns @p size rounded up to a multiple of the page size.
/// @param size  in bytes, not 0
/// @throws Error ENOMEM if @p size is larger than any mapping of Linux (PTRDIFF_MAX)
[[nodiscard]] std::size_t round_up_to_pages(std::size_t size);

/// Returns the number of shared objects that this process has loaded so far. The number grows with
/// each dlopen(3) of a new object. A search for a library can be skipped while the number is
/// unchanged.
[[nodiscard]] unsigned long long loaded_objects() noexcept;

/// Returns true if @p address lies in the executable code of the program or of a loaded shared
/// object.
[[nodiscard]] bool is_loaded_code(std::uintptr_t address) noexcept;

} // namespace rdmabuf::detail
