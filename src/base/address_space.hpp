// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmabuf::detail {

/// Returns the page size of the running kernel in bytes: 4, 16 or 64 KiB.
[[nodiscard]] std::size_t page_size() noexcept;

/// Returns @p size, which is not 0, rounded up to whole pages.
/// @throws Error ENOMEM for more than an address space holds
[[nodiscard]] std::size_t round_up_to_pages(std::size_t size);

/// Returns how many shared objects this process has loaded so far. The number changes with each
/// dlopen(3) that loads one, so that code that did not find a library knows when to look again.
[[nodiscard]] unsigned long long loaded_objects() noexcept;

/// Whether @p address lies in an executable mapping of a loaded object.
[[nodiscard]] bool is_loaded_code(std::uintptr_t address) noexcept;

} // namespace rdmabuf::detail
