// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "objects/device.hpp"

namespace softverbs {

/// The device and inode number of a file. They are the same for all duplicates of a file
/// descriptor.
struct FileIdentity {
    dev_t device = 0;
    ino_t number = 0;
    bool operator==(const FileIdentity&) const = default;
};

/// The file to which ibv_context::cmd_fd refers. All contexts whose cmd_fd refers to the same file
/// share this object, and can import each other's verbs objects.
struct DeviceFile {
    Device* device = nullptr;
    FileIdentity identity;
    /// Whether the file descriptor came from another process. The verbs objects of that process
    /// cannot be imported.
    bool of_other_process = false;
    std::vector<Pd*> pds;
    std::vector<std::unique_ptr<Pd>> imported_pds;
};

/// Creates a file descriptor for ibv_context::cmd_fd. If the program passes it to another process,
/// ibv_import_device() finds the same device in that process. Returns a negative value and sets
/// errno on failure.
[[nodiscard]] int make_device_descriptor(const Device& device) noexcept;
/// Returns the index (from 0) of the device for which make_device_descriptor() has created @p fd.
/// Returns no value for other file descriptors.
[[nodiscard]] std::optional<unsigned> device_of_descriptor(int fd) noexcept;
/// Returns the identity of the file to which @p fd refers. Returns no value if @p fd is not an open
/// file descriptor.
[[nodiscard]] std::optional<FileIdentity> identity_of(int fd) noexcept;

} // namespace softverbs
