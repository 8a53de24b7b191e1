// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <rdmabuf/exporter.hpp>

#include "level_zero/level_zero_driver.hpp"

namespace rdmabuf::detail::level_zero {

/// Allocates memory of a GPU for export, in whole pages. The GPU executes copies to and from the
/// memory.
/// @param driver  initialised; must exist until the process ends
/// @param size    in bytes, not 0
[[nodiscard]] Buffer allocate(const Driver& driver, const Gpu& gpu, std::size_t size);

} // namespace rdmabuf::detail::level_zero
