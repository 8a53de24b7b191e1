// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace rdmabuf::detail {

/// Of the running kernel, in bytes: 4, 16 or 64 KiB.
[[nodiscard]] std::size_t page_size() noexcept;

/// @p size, which is not 0, rounded up to whole pages.
/// @throws Error ENOMEM for more than an address space holds
[[nodiscard]] std::size_t round_up_to_pages(std::size_t size);

} // namespace rdmabuf::detail
