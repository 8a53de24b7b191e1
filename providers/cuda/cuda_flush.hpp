// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/cuda_driver.hpp"

namespace rdmabuf::detail::cuda {

/// What it takes to make RDMA writes visible.
enum class Flush : std::uint8_t { unnecessary, necessary, impossible };

/// @param scope  to_owner or to_all_devices
[[nodiscard]] Flush flush_needed(const Driver& driver, Device device, int scope);
/// Flushes; the context of the memory is current. @throws Error
void flush(const Driver& driver, int scope);

} // namespace rdmabuf::detail::cuda
