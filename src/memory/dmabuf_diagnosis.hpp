// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <rdmabuf/context.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf::detail {

/// What /proc/self/fd, /proc/self/fdinfo, fstat(2) and fcntl(2) report about an open file
/// descriptor: see "DMA Buffer files" in Documentation/filesystems/proc.rst of Linux.
struct DescriptorFacts {
    /// The name of the exporter, for example "drm" or "nv_dmabuf"; empty if the file is not a
    /// dma-buf.
    std::string exporter;
    /// The target of the link in /proc/self/fd: a path, or a text such as "anon_inode:[eventfd]".
    /// The text is "another file" if the link cannot be read.
    std::string file;
    /// False if the link in /proc/self/fd cannot be read, so that the type of the file is unknown.
    bool known = true;
    /// The size of the dma-buf or of the regular file in bytes; negative for other files, and if
    /// the size cannot be read.
    std::int64_t size = -1;
    /// The file status flags, such as O_RDWR and O_PATH; -1 if the descriptor is not open.
    int flags = -1;

    /// Returns true if the flags in @p mask are known and equal @p wanted.
    [[nodiscard]] bool has_flags(int mask, int wanted) const {
        return flags >= 0 && (flags & mask) == wanted;
    }
    /// Returns true if the file is a memfd, which softverbs registers like a dma-buf.
    [[nodiscard]] bool is_memfd() const { return file.starts_with("/memfd:"); }
};
[[nodiscard]] DescriptorFacts inspect_descriptor(int fd);

/// Returns true if the descriptor is known to be neither a dma-buf nor a memfd, or if @p range ends
/// after the end of its file. No NIC can then register the range as a dma-buf.
[[nodiscard]] bool is_invalid(const DmaBufRange& range, const DescriptorFacts& descriptor);

/// Returns the probable reason why the registration of @p range failed with @p error, as a hint for
/// the user. If the reason is unknown, returns the exporter of the dma-buf, or an empty text if the
/// exporter is unknown, too. For EOPNOTSUPP, this function checks if the device can import
/// dma-bufs.
/// @param access  the access flags of the registration
[[nodiscard]] std::string diagnose_dmabuf(const Context& context, const DmaBufRange& range,
                                          const DescriptorFacts& descriptor, Access access,
                                          int error);

} // namespace rdmabuf::detail
