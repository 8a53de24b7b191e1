// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include <rdmabuf/exporter.hpp>

#include "rocm/rocm_runtime.hpp"

namespace rdmabuf::detail::rocm {

/// Allocates memory from the coarse-grained pool of a GPU, in whole pages. The buffer keeps HSA
/// initialised.
/// @param size  in bytes, not 0
[[nodiscard]] Buffer allocate(std::shared_ptr<const Runtime> runtime, Agent gpu, std::size_t size);

} // namespace rdmabuf::detail::rocm
