// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "abi/paths.hpp"
#include "objects/device.hpp"

namespace softverbs::sysfs {

/// A generated directory tree: the path and contents of each file, and the path and target of each
/// symbolic link. Each path begins with "/sys".
struct Tree {
    std::map<std::string, std::string> files;
    std::map<std::string, std::string> links;
};

/// The sysfs directory of the PCI bus of the softverbs devices. The PCI domain 5056 is unlikely to
/// exist on a real machine.
inline constexpr char pci_root[] = "/sys/devices/pci5056:00";

/// Returns the PCI address of the device: "5056:00:00.1" for device 1. The addresses differ only in
/// the function number. NCCL treats such devices as the functions of one card.
[[nodiscard]] std::string pci_name(const Device& device);

/// Adds the sysfs files of a device and its ports.
void describe(Tree& tree, const Device& device);

/// Adds a symbolic link from the device to a network interface of the kernel. rdma_cm uses this
/// device for the IP addresses of the interface.
void add_network_interface(Tree& tree, const Device& device, const std::string& interface);

/// Translates a path in /sys to the path of the generated file, and stores it in @p target. Returns
/// false if softverbs does not replace the kernel's file.
[[nodiscard]] bool translate(std::string_view path, PathBuffer& target);

/// Replaces, in @p path, the path of a generated file by the original path in /sys. Does nothing
/// for other paths. The result is never longer than the generated path, so it fits into the same
/// buffer.
void restore(char* path) noexcept;

} // namespace softverbs::sysfs
