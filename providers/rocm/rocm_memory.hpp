// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include <rdmabuf/exporter.hpp>

#include "rocm/rocm_runtime.hpp"

namespace rdmabuf::detail::rocm {

/// Memory of a GPU's coarse-grained pool, in whole pages. HSA stays initialised as long as it
/// lives.
/// @param size  in bytes, not 0
[[nodiscard]] Buffer allocate(std::shared_ptr<const Runtime> runtime, Agent gpu, std::size_t size);

} // namespace rdmabuf::detail::rocm
