// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// Memory behind a descriptor, mapped here: shared by the regions in it, gone with the last.
struct Mapping {
    std::uint32_t id = 0; // not 0, not used twice
    int fd = -1;          // its own duplicate
    std::byte* data = nullptr;
    std::size_t length = 0; // of the descriptor's memory
    bool writable = true;
    /// A real dma-buf, and no memfd: the CPU's accesses are bracketed.
    bool is_dmabuf = false;
    unsigned users = 0;
};

/// Maps a dma-buf or memfd for one user: a new mapping, or one that there is of the same memory.
/// Null and errno: EBADF (no descriptor), EINVAL (neither a dma-buf nor a memfd, or one that cannot
/// be mapped), ENOMEM, EMFILE, EACCES (@p write, and it is open for reading only or sealed).
///
/// A dma-buf cannot shrink, and a memfd must not while it is mapped: F_SEAL_SHRINK is added to it
/// where it permits that. One that does not, and is cut short nevertheless, ends the process with
/// SIGBUS at the next access.
[[nodiscard]] Mapping* map_descriptor(int fd, bool write);
/// New memory in a memfd named @p name, for one user. Null and errno.
[[nodiscard]] Mapping* make_memory(const char* name, std::size_t length);
/// How long the memory of a real dma-buf or memfd is. 0 and errno: EBADF, EINVAL, EACCES, as above.
[[nodiscard]] std::size_t length_of_descriptor(int fd) noexcept;
void retain(Mapping& mapping) noexcept;
/// The last user's frees it. Nothing for null.
void release(Mapping* mapping) noexcept;

/// Another descriptor for the same memory, closed by exec(2), the caller's: -1 and errno.
[[nodiscard]] int duplicate(int fd) noexcept;

} // namespace softverbs
