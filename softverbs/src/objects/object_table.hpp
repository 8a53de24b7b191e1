// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "fabric/mapping.hpp"

namespace softverbs {

/// The memory of a shared memory region or of shared device memory.
struct SharedMemory {
    std::uint32_t pd = 0;     // MR only: handle of the protection domain
    std::uint32_t key = 0;    // MR only: the lkey
    std::uint32_t access = 0; // MR only: the access flags
    /// The file descriptor of the memory in the process that has created the object. -1: other
    /// processes cannot map the memory.
    std::int32_t fd = -1;
    /// The inode number of the memory's file. Another process compares it after it has opened the
    /// file.
    std::uint64_t inode = 0;
    /// MR only: address in work requests.
    std::uint64_t iova = 0;
    /// Length of the region or of the device memory in bytes.
    std::uint64_t length = 0;
    /// MR only: offset of the region in the file in bytes.
    std::uint64_t offset = 0;
};

/// An object in an ObjectTable, in shared memory.
struct SharedObject {
    enum class Kind : std::uint32_t { none, pd, mr, dm };
    /// Kind::none: the entry contains no object. Written last when an entry is filled.
    std::atomic<Kind> kind;
    std::atomic<std::uint32_t> handle;
    /// PD only: number of objects of importing processes that use the protection domain.
    std::atomic<std::uint32_t> users;
    /// PD only: the PID of the last process that has imported the protection domain; 0: none.
    std::atomic<std::int32_t> importer;
    SharedMemory memory;
};
static_assert(std::atomic<SharedObject::Kind>::is_always_lock_free);

/// The protection domains, memory regions and device memory of an open device file, in shared
/// memory. The kernel has such a table for each open device file. The process that has opened the
/// device file writes the table; processes that have imported the device file find the objects by
/// their handles. These processes can write to the table, so the owner keeps a copy of all values
/// on which its own memory accesses depend.
class ObjectTable {
  public:
    ObjectTable() noexcept = default;
    /// Maps the table in the file of @p fd. If this fails, the object is empty and errno is set.
    explicit ObjectTable(int fd) noexcept;
    /// Creates a file with an empty table for the device @p device (an index from 0), and returns
    /// its descriptor. The caller owns the descriptor. On failure, returns a negative value and
    /// sets errno.
    [[nodiscard]] static int create(unsigned device) noexcept;
    /// Returns the index of the device for which create() has created @p fd. Returns no value for
    /// other file descriptors.
    [[nodiscard]] static std::optional<unsigned> device_of(int fd) noexcept;

    explicit operator bool() const noexcept { return static_cast<bool>(memory_); }
    /// Returns whether this process has created the table. A child process after fork(2) has not.
    [[nodiscard]] bool is_owner() const noexcept;
    /// Returns the PID of the process that has created the table.
    [[nodiscard]] pid_t owner() const noexcept { return owner_; }

    /// Adds an object. Returns null if this process is not the owner, if the table is full, or if
    /// no memory is left. Other processes then cannot import the object. The pointer is valid as
    /// long as the table exists.
    SharedObject* add(SharedObject::Kind kind, std::uint32_t handle,
                      const SharedMemory& memory = {}) noexcept;
    /// Removes an object. Does nothing if @p object is null, or if this process is not the owner.
    void remove(SharedObject* object) noexcept;
    [[nodiscard]] SharedObject* find(SharedObject::Kind kind, std::uint32_t handle) const noexcept;

  private:
    fabric::Mapping memory_;
    pid_t owner_ = 0;
    /// Owner only: number of entries that have been used so far. The entries after them are unused.
    std::uint32_t used_ = 0;
    /// Owner only: indices of the entries of removed objects, which can be used again.
    std::vector<std::uint32_t> free_;
};

/// Returns whether the table entry @p region still contains the memory region with this handle.
[[nodiscard]] inline bool is_current(const SharedObject& region, std::uint32_t handle) noexcept {
    return region.kind.load(std::memory_order_acquire) == SharedObject::Kind::mr &&
           region.handle.load(std::memory_order_relaxed) == handle;
}
/// Returns whether objects of other processes use the protection domain. Returns false if the last
/// process that has imported the protection domain has ended.
[[nodiscard]] bool is_used_by_others(const SharedObject& domain) noexcept;

/// Opens the memory of an object of the process @p owner. The caller owns the descriptor. On
/// failure, returns -1 and sets errno: EOPNOTSUPP (other processes cannot map the memory, or the
/// process has ended or belongs to another user), EMFILE, ENFILE, ENOMEM.
[[nodiscard]] int open_memory(pid_t owner, const SharedMemory& memory) noexcept;

} // namespace softverbs
