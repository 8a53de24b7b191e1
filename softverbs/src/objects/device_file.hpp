// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "objects/device.hpp"

namespace softverbs {

/// Identifies the open file of a descriptor. All duplicates of the descriptor have the same
/// identity.
struct FileIdentity {
    dev_t device = 0;
    ino_t number = 0;
    bool operator==(const FileIdentity&) const = default;
};

/// An open device. All contexts whose cmd_fd is a duplicate of the same descriptor share it and its
/// objects.
struct DeviceFile {
    Device* device = nullptr;
    FileIdentity identity;
    /// The descriptor was received from another process, whose objects are not available here.
    bool of_other_process = false;
    std::vector<Pd*> pds;
    std::vector<std::unique_ptr<Pd>> imported_pds;
};

/// Creates a descriptor for ibv_context::cmd_fd. It identifies the device in every process to which
/// it is passed. Returns a negative value and sets errno on failure.
[[nodiscard]] int make_device_descriptor(const Device& device) noexcept;
/// Returns the index of the device that a descriptor from make_device_descriptor() identifies.
[[nodiscard]] std::optional<unsigned> device_of_descriptor(int fd) noexcept;
/// Returns no value if @p fd is not an open descriptor.
[[nodiscard]] std::optional<FileIdentity> identity_of(int fd) noexcept;

} // namespace softverbs
