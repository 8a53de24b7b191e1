// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace rdmabuf::detail {

/// ENOTSUPP of include/linux/errno.h: meant for the kernel alone, but nvidia's dma-buf exporter and
/// others return it, and uverbs passes it on.
inline constexpr int kernel_enotsupp = 524;

} // namespace rdmabuf::detail
