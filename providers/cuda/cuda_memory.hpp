// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <rdmabuf/exporter.hpp>

#include "cuda/cuda_driver.hpp"

namespace rdmabuf::detail::cuda {

/// Memory of a device, in whole pages, made and copied in its primary context.
/// @param driver  initialised, and alive as long as the process
/// @param size  in bytes, not 0
[[nodiscard]] Buffer allocate(const Driver& driver, Device device, std::size_t size);

} // namespace rdmabuf::detail::cuda
