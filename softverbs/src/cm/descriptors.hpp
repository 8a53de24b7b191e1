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

/// The highest descriptor that can refer to the device. If open(2) of the device would return a
/// higher one, it fails with EMFILE.
inline constexpr int max_descriptor = 65535;

/// The open file of each descriptor of /dev/infiniband/rdma_cm; null for all other descriptors. It
/// is an array, so that write(2) and close(2) of any descriptor need only one load. Changes require
/// the manager's lock.
extern constinit std::array<std::atomic<ChannelFile*>, max_descriptor + 1> files_by_descriptor;

/// Returns whether a descriptor may refer to /dev/infiniband/rdma_cm. Never waits for a lock.
[[nodiscard]] inline bool may_be_device(int descriptor) noexcept {
    return descriptor >= 0 && descriptor <= max_descriptor &&
           files_by_descriptor[static_cast<std::size_t>(descriptor)].load(
               std::memory_order_relaxed) != nullptr;
}

/// Returns whether a descriptor refers to /dev/infiniband/rdma_cm. Returns false if the descriptor
/// was closed by a call that softverbs does not intercept, and its number now refers to another
/// file.
[[nodiscard]] bool is_device(int descriptor);

/// Returns the open rdma_cm file of a descriptor. Returns null for descriptors of other files, and
/// in a child of the process that opened the file. The caller must hold the manager's lock to use
/// the file.
[[nodiscard]] ChannelFile* file_of(int descriptor) noexcept;

/// Implements open(2) of /dev/infiniband/rdma_cm.
[[nodiscard]] int open_device(std::string_view path, int flags);
/// Implements write(2) of a command to a descriptor of the device. GET_EVENT waits in read(2),
/// which is a cancellation point.
[[nodiscard]] ssize_t write_command(int descriptor, const void* buffer, std::size_t size);
/// Replaces the result of fstat(2) for the socket by the values of the device file.
void describe_device(struct stat& status) noexcept;

/// Call this before a descriptor is closed. When the last descriptor of a file is closed, the ids
/// of the file are destroyed.
void closing(int descriptor) noexcept;
/// Call this after dup(2) or a similar function has duplicated @p descriptor as @p copy.
void duplicated(int descriptor, int copy) noexcept;
/// Call this in the child after fork(2): commands on the descriptors of @p file then fail.
void orphan(const ChannelFile& file) noexcept;

} // namespace softverbs::cm
