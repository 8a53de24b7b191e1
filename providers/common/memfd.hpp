// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <rdmabuf/unique_fd.hpp>

#include "common/refusal.hpp"

namespace rdmabuf::detail {

/// An empty file in memory, close-on-exec, that can be sealed.
[[nodiscard]] OrRefusal<UniqueFd> open_memfd();

/// One of @p size bytes, with @p seals (F_SEAL_*). @throws Error
[[nodiscard]] UniqueFd make_memfd(std::size_t size, int seals);

} // namespace rdmabuf::detail
