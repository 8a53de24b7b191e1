// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace softverbs {

/// The device and inode number of a file. They are the same for all duplicates of a file
/// descriptor.
struct FileIdentity {
    dev_t device = 0;
    ino_t number = 0;
    auto operator<=>(const FileIdentity&) const = default;
};

/// Returns the identity of the file to which @p fd refers. On failure, returns no value and sets
/// errno.
[[nodiscard]] std::optional<FileIdentity> identity_of(int fd) noexcept;

/// A mapping of a dma-buf or a memfd. Memory regions of the same memory share one mapping, unless
/// their file descriptors permit different accesses, or a memfd has grown in the meantime. The
/// memory is unmapped when the last user of the mapping, such as a region, is removed.
struct Mapping {
    Mapping() = default;
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    std::uint32_t id = 0; // not 0, unique in this process
    int fd = -1;          // owned by the mapping
    std::byte* data = nullptr;
    std::size_t length = 0; // of the whole memory, in bytes
    bool writable = true;
    /// Whether the memory is a real dma-buf, not a memfd. CPU accesses to a dma-buf need
    /// DMA_BUF_IOCTL_SYNC before and after.
    bool is_dmabuf = false;
    unsigned users = 0;
    FileIdentity identity;
};

/// Maps a dma-buf or memfd, or returns the existing mapping of this memory. Adds one user to the
/// mapping. The caller still owns @p fd. On failure, returns null and sets errno: EBADF (@p fd is
/// not open, or was opened with O_PATH), EINVAL (it is neither a dma-buf nor a memfd, or cannot be
/// mapped), EACCES (@p write is set and the descriptor is read-only or sealed, or the memfd is
/// write-only), ENOMEM, EMFILE.
///
/// A dma-buf cannot shrink. If a mapped memfd shrinks, an access ends the process with SIGBUS.
/// Therefore F_SEAL_SHRINK is added to a memfd, if its other seals permit that.
[[nodiscard]] Mapping* map_descriptor(int fd, bool write);
/// Allocates memory in a new memfd and maps it. The caller is the first user of the mapping and
/// must call release(). On failure, returns null and sets errno.
[[nodiscard]] Mapping* make_memory(const char* name, std::size_t length);
/// Returns the size in bytes of a dma-buf or memfd. On failure, returns 0 and sets errno to EBADF,
/// EINVAL or EACCES, as map_descriptor() does.
[[nodiscard]] std::size_t length_of_descriptor(int fd) noexcept;
void retain(Mapping& mapping) noexcept;
/// Removes one user of the mapping. When the last user is removed, the memory is unmapped. Does
/// nothing if @p mapping is null.
void release(Mapping* mapping) noexcept; // releases Process::lock while it unmaps

/// Duplicates a file descriptor with FD_CLOEXEC. The caller owns the result. On failure, returns -1
/// and sets errno.
[[nodiscard]] int duplicate(int fd) noexcept;

} // namespace softverbs
