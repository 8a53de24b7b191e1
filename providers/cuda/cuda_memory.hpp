// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <rdmabuf/exporter.hpp>

#include "cuda/cuda_driver.hpp"

namespace rdmabuf::detail::cuda {

/// Allocates memory of a device in whole pages. The memory is allocated, copied and freed in the
/// primary context of the device.
/// @param driver  initialised; must exist until the process ends
/// @param size    in bytes, not 0
[[nodiscard]] Buffer allocate(const Driver& driver, Device device, std::size_t size);

} // namespace rdmabuf::detail::cuda
