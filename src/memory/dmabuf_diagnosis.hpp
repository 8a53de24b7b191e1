// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <rdmabuf/context.hpp>
#include <rdmabuf/exported_range.hpp>

namespace rdmabuf::detail {

/// The contents of /proc/self/fd and /proc/self/fdinfo for an open file descriptor: see "DMA Buffer
/// files" in Documentation/filesystems/proc.rst of Linux.
struct DescriptorFacts {
    /// The name of the exporter, for example "drm" or "nv_dmabuf"; empty if the file is not a
    /// dma-buf.
    std::string exporter;
    /// The target of the link in /proc/self/fd: a path, or a text such as "anon_inode:[eventfd]".
    std::string file;
    /// The size of the dma-buf in bytes; negative if the file is not a dma-buf.
    std::int64_t size = -1;
};
[[nodiscard]] DescriptorFacts inspect_descriptor(int fd);

/// Returns the probable reason why the registration of @p range failed with @p error, as a hint for
/// the user; empty if the reason is unknown. For EOPNOTSUPP, this function checks if the device can
/// import dma-bufs.
[[nodiscard]] std::string diagnose_dmabuf(const Context& context, const DmaBufRange& range,
                                          const DescriptorFacts& descriptor, int error);

} // namespace rdmabuf::detail
