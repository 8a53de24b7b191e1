// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <rdmabuf/exporter.hpp>

#include "level_zero/level_zero_driver.hpp"

namespace rdmabuf::detail::level_zero {

/// Memory of a GPU, in whole pages, allocated for export and copied by the GPU.
/// @param driver  initialised, and alive as long as the process
/// @param size  in bytes, not 0
[[nodiscard]] Buffer allocate(const Driver& driver, const Gpu& gpu, std::size_t size);

} // namespace rdmabuf::detail::level_zero
