// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/cuda_driver.hpp"

namespace rdmabuf::detail::cuda {

/// Tells whether the host must flush RDMA writes to make the written data visible to the GPU.
/// `unnecessary`: the device orders the writes by itself. `necessary`: the host must flush.
/// `impossible`: the device does not support a flush by the host.
enum class Flush : std::uint8_t { unnecessary, necessary, impossible };

/// Returns whether RDMA writes to memory of @p device need a flush.
/// @param scope  to_owner or to_all_devices
[[nodiscard]] Flush flush_needed(const Driver& driver, Device device, int scope);
/// Flushes RDMA writes. The context of the memory must be current. @throws Error if the flush fails
void flush(const Driver& driver, int scope);

} // namespace rdmabuf::detail::cuda
