// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "objects/device.hpp"

namespace softverbs {

/// The file behind a descriptor, the same one for all its duplicates.
struct FileIdentity {
    dev_t device = 0;
    ino_t number = 0;
    bool operator==(const FileIdentity&) const = default;
};

/// An open device: the objects that the contexts with duplicates of one cmd_fd share.
struct DeviceFile {
    Device* device = nullptr;
    FileIdentity identity;
    /// The descriptor came from another process, whose objects this process does not have.
    bool of_other_process = false;
    std::vector<Pd*> pds;
    std::vector<std::unique_ptr<Pd>> imported_pds;
};

/// Creates a descriptor for ibv_context::cmd_fd, which names the device in every process that it is
/// passed to. Negative: errno is set.
[[nodiscard]] int make_device_descriptor(const Device& device) noexcept;
/// Index of the device that the descriptor of another context names.
[[nodiscard]] std::optional<unsigned> device_of_descriptor(int fd) noexcept;
/// No value: it is not a descriptor.
[[nodiscard]] std::optional<FileIdentity> identity_of(int fd) noexcept;

} // namespace softverbs
