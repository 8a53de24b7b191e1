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

/// Descriptors above this one are never of the device: open(2) of it fails with EMFILE.
inline constexpr int max_descriptor = 65535;

/// The file of each descriptor of /dev/infiniband/rdma_cm; null for all others. An array, so that
/// write(2) and close(2) of any descriptor cost one load. The manager's lock guards changes.
extern constinit std::array<std::atomic<ChannelFile*>, max_descriptor + 1> files_by_descriptor;

/// Whether a descriptor may be the device's. Never waits.
[[nodiscard]] inline bool may_be_device(int descriptor) noexcept {
    return descriptor >= 0 && descriptor <= max_descriptor &&
           files_by_descriptor[static_cast<std::size_t>(descriptor)].load(
               std::memory_order_relaxed) != nullptr;
}

/// Whether it is. It is not where a call that softverbs does not see closed it, and the number is
/// another file's now.
[[nodiscard]] bool is_device(int descriptor);

/// The file behind a descriptor; null for other files' descriptors, and in a child of the process
/// that opened it. With the manager's lock held.
[[nodiscard]] ChannelFile* file_of(int descriptor) noexcept;

/// open(2) of the device.
[[nodiscard]] int open_device(std::string_view path, int flags);
/// write(2) of a command to a descriptor of the device. Waits in read(2), and is a cancellation
/// point there.
[[nodiscard]] ssize_t write_command(int descriptor, const void* buffer, std::size_t size);
/// Makes fstat(2)'s result that of the device's file.
void describe_device(struct stat& status) noexcept;

/// Before the descriptor is closed: with the last one of a file the file's ids end.
void closing(int descriptor) noexcept;
/// Call this after @p copy was made by dup(2) or a similar function.
void duplicated(int descriptor, int copy) noexcept;
/// After fork(2), in the child: no command works on the descriptors of a file any more.
void orphan(const ChannelFile& file) noexcept;

} // namespace softverbs::cm
