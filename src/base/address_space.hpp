// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmabuf::detail {

/// Returns the page size of the running kernel in bytes, for example 4096.
[[nodiscard]] std::size_t page_size() noexcept;

/// Returns @p size rounded up to a multiple of the page size.
/// @param size  in bytes, not 0
/// @throws Error ENOMEM if @p size is larger than the largest multiple of the page size up to
///         PTRDIFF_MAX; Linux makes no larger mapping
[[nodiscard]] std::size_t round_up_to_pages(std::size_t size);

/// Returns the number of objects (the program and shared objects) that this process has loaded so
/// far: the member dlpi_adds of dl_iterate_phdr(3). The number grows with each dlopen(3) of a new
/// object. A search for a library can be skipped while the number is unchanged.
[[nodiscard]] unsigned long long loaded_objects() noexcept;

/// Returns true if @p address lies in the executable code of the program or of a loaded shared
/// object.
[[nodiscard]] bool is_loaded_code(std::uintptr_t address) noexcept;

} // namespace rdmabuf::detail
