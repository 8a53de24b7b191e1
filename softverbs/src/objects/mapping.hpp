// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// A mapping of the memory behind a descriptor. All memory regions in this memory share the
/// mapping; it is unmapped with the last of them.
struct Mapping {
    std::uint32_t id = 0; // not 0, unique in this process
    int fd = -1;          // a duplicate that the mapping owns
    std::byte* data = nullptr;
    std::size_t length = 0; // of the whole memory, in bytes
    bool writable = true;
    /// A real dma-buf, not a memfd: CPU accesses must be bracketed with DMA_BUF_IOCTL_SYNC.
    bool is_dmabuf = false;
    unsigned users = 0;
};

/// Maps a dma-buf or memfd and adds one user. Reuses an existing mapping of the same memory. The
/// caller keeps ownership of @p fd. Returns null and sets errno on failure: EBADF (not an open
/// descriptor), EINVAL (neither a dma-buf nor a memfd, or mmap(2) is not possible), EACCES (@p
/// write is set and the descriptor is read-only or sealed, or the memfd is write-only), ENOMEM,
/// EMFILE.
///
/// A dma-buf cannot shrink. A memfd must not shrink while it is mapped, so F_SEAL_SHRINK is added
/// to it if its seals permit that. If they do not and the memfd shrinks, the next access ends the
/// process with SIGBUS.
[[nodiscard]] Mapping* map_descriptor(int fd, bool write);
/// Allocates memory in a new memfd named @p name, with one user. Returns null and sets errno on
/// failure.
[[nodiscard]] Mapping* make_memory(const char* name, std::size_t length);
/// Size in bytes of the memory of a dma-buf or memfd. 0 and errno on failure: EBADF, EINVAL or
/// EACCES, as for map_descriptor().
[[nodiscard]] std::size_t length_of_descriptor(int fd) noexcept;
void retain(Mapping& mapping) noexcept;
/// Removes one user; the last one unmaps the memory. Does nothing for null.
void release(Mapping* mapping) noexcept; // releases the lock while it unmaps

/// Duplicates a descriptor, with FD_CLOEXEC set. The caller owns the result. -1 and errno on
/// failure.
[[nodiscard]] int duplicate(int fd) noexcept;

} // namespace softverbs
