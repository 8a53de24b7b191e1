// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <rdmabuf/context.hpp>
#include <rdmabuf/exported_range.hpp>

namespace rdmabuf::detail {

/// What /proc tells about a descriptor: Documentation/filesystems/proc.rst, "DMA Buffer files".
struct DescriptorFacts {
    /// "drm", "nv_dmabuf": the exporter's name, which dma-bufs have and no other file has.
    std::string exporter;
    /// The file as /proc shows it: a path, or "anon_inode:[eventfd]".
    std::string file;
    /// Of a dma-buf, in bytes; otherwise negative.
    std::int64_t size = -1;
};
[[nodiscard]] DescriptorFacts inspect_descriptor(int fd);

/// Why registering @p range failed with @p error, as far as can be found out afterwards. Asks the
/// device whether it can import at all, where that decides.
[[nodiscard]] std::string diagnose_dmabuf(const Context& context, const DmaBufRange& range,
                                          const DescriptorFacts& descriptor, int error);

} // namespace rdmabuf::detail
