// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/types.h>
#include <linux/vfio.h>

#include <cstddef>

namespace rdmabuf::detail {

// This header declares the feature VFIO_DEVICE_FEATURE_DMA_BUF of <linux/vfio.h>, because older
// kernel headers do not declare it.

constexpr __u32 vfio_feature_dma_buf = 11;

/// Describes one range of one region. It is the argument of the ioctl VFIO_DEVICE_FEATURE for the
/// feature VFIO_DEVICE_FEATURE_DMA_BUF.
struct VfioDmaBufRequest {
    __u32 argsz;
    __u32 feature_flags;
    __u32 region_index;
    /// Flags of the new dma-buf descriptor, as for open(2).
    __u32 open_flags;
    /// Must be 0.
    __u32 flags;
    __u32 nr_ranges;
    __u64 offset;
    __u64 length;
};

#ifdef VFIO_DEVICE_FEATURE_DMA_BUF
static_assert(vfio_feature_dma_buf == VFIO_DEVICE_FEATURE_DMA_BUF);
static_assert(offsetof(VfioDmaBufRequest, region_index) == offsetof(vfio_device_feature, data));
constexpr bool at_place(std::size_t ours, std::size_t theirs) {
    return ours - offsetof(VfioDmaBufRequest, region_index) == theirs;
}
static_assert(at_place(offsetof(VfioDmaBufRequest, region_index),
                       offsetof(vfio_device_feature_dma_buf, region_index)));
static_assert(at_place(offsetof(VfioDmaBufRequest, open_flags),
                       offsetof(vfio_device_feature_dma_buf, open_flags)));
static_assert(at_place(offsetof(VfioDmaBufRequest, flags),
                       offsetof(vfio_device_feature_dma_buf, flags)));
static_assert(at_place(offsetof(VfioDmaBufRequest, nr_ranges),
                       offsetof(vfio_device_feature_dma_buf, nr_ranges)));
static_assert(at_place(offsetof(VfioDmaBufRequest, offset),
                       offsetof(vfio_device_feature_dma_buf, dma_ranges)));
static_assert(offsetof(VfioDmaBufRequest, length) - offsetof(VfioDmaBufRequest, offset) ==
              offsetof(vfio_region_dma_range, length));
#endif

} // namespace rdmabuf::detail
