// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "objects/device.hpp"

namespace softverbs {

/// The device and inode number of a file. All duplicates of a descriptor have the same identity.
struct FileIdentity {
    dev_t device = 0;
    ino_t number = 0;
    bool operator==(const FileIdentity&) const = default;
};

/// An open device file. All contexts whose ibv_context::cmd_fd is a descriptor of this file share
/// it, and can import each other's objects.
struct DeviceFile {
    Device* device = nullptr;
    FileIdentity identity;
    /// Whether the descriptor came from another process. The objects of that process cannot be
    /// imported.
    bool of_other_process = false;
    std::vector<Pd*> pds;
    std::vector<std::unique_ptr<Pd>> imported_pds;
};

/// Creates a descriptor for ibv_context::cmd_fd. If the program passes the descriptor to another
/// process, ibv_import_device() finds the same device in that process. Returns a negative value and
/// sets errno on failure.
[[nodiscard]] int make_device_descriptor(const Device& device) noexcept;
/// Returns the index of the device for which make_device_descriptor() has created @p fd. Returns no
/// value for other descriptors.
[[nodiscard]] std::optional<unsigned> device_of_descriptor(int fd) noexcept;
/// Returns the identity of the file of @p fd. Returns no value if @p fd is not an open descriptor.
[[nodiscard]] std::optional<FileIdentity> identity_of(int fd) noexcept;

} // namespace softverbs
