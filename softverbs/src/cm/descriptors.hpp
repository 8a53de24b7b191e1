// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

namespace softverbs::cm {

struct ChannelFile;

inline constexpr std::string_view device_path = "/dev/infiniband/rdma_cm";

/// The highest file descriptor number for /dev/infiniband/rdma_cm. If only higher numbers are free
/// in the process, open(2) fails with EMFILE.
inline constexpr int max_descriptor = 65535;

/// The ChannelFile (event channel) for each file descriptor number; null if the descriptor does not
/// refer to /dev/infiniband/rdma_cm. The elements are atomic, so that write(2) and close(2) can
/// check each descriptor with one load. A thread that changes an element must hold Manager::lock,
/// unless this process has no Manager.
extern constinit std::array<std::atomic<ChannelFile*>, max_descriptor + 1> files_by_descriptor;

/// A fast check without a lock. Returns false if softverbs knows no file descriptor of
/// /dev/infiniband/rdma_cm with this number. If it returns true, the number may now refer to
/// another file: only is_device() checks this.
[[nodiscard]] inline bool may_be_device(int descriptor) noexcept {
    return descriptor >= 0 && descriptor <= max_descriptor &&
           files_by_descriptor[static_cast<std::size_t>(descriptor)].load(
               std::memory_order_relaxed) != nullptr;
}

/// Returns whether the file descriptor refers to /dev/infiniband/rdma_cm. Returns false if the
/// program has closed it with a call that softverbs does not intercept, and its number now refers
/// to another file.
[[nodiscard]] bool is_device(int descriptor);

/// Returns the ChannelFile (event channel) of a file descriptor of /dev/infiniband/rdma_cm. Returns
/// null for other descriptors, and in a child process after fork(2) if the parent opened the
/// channel. The caller must hold Manager::lock to use the ChannelFile.
[[nodiscard]] ChannelFile* file_of(int descriptor) noexcept;

/// Implements open(2) for /dev/infiniband/rdma_cm.
[[nodiscard]] int open_device(std::string_view path, int flags);
/// Implements write(2) for /dev/infiniband/rdma_cm: executes the command in @p buffer. For the
/// command GET_EVENT, calls read(2) to wait for an event. Therefore the function is a cancellation
/// point for this command, but for no other.
[[nodiscard]] ssize_t write_command(int descriptor, const void* buffer, std::size_t size);
/// Changes the result of fstat(2) to that of the device file. The descriptor is a socket, so the
/// kernel has returned the status of a socket.
void describe_device(struct stat& status) noexcept;

/// Must be called before a descriptor of /dev/infiniband/rdma_cm is closed. If it is the last
/// descriptor of its event channel, the rdma_cm ids of this channel are destroyed.
void closing(int descriptor) noexcept;
/// Must be called after dup(2) or a similar function has duplicated a descriptor of
/// /dev/infiniband/rdma_cm.
void duplicated(int descriptor, int copy) noexcept;
/// Removes all descriptors of the event channel @p file from files_by_descriptor. Called when the
/// program has closed them with calls that softverbs does not intercept; their numbers may now
/// refer to other files.
void forget(ChannelFile& file) noexcept;
/// Must be called in a child process after fork(2). The commands that the child writes to
/// descriptors of @p file then fail.
void orphan(const ChannelFile& file) noexcept;

} // namespace softverbs::cm
