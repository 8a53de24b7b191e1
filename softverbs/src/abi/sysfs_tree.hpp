// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>

#include "objects/device.hpp"

namespace softverbs::sysfs {

/// Files and symbolic links, indexed by their path, which begins with "/sys".
struct Tree {
    std::map<std::string, std::string> files;
    std::map<std::string, std::string> links;
};

/// The directory of the PCI devices. Real machines do not use this PCI domain number.
inline constexpr char pci_root[] = "/sys/devices/pci5056:00";

/// The name of the device's PCI function: "5056:00:01.0".
[[nodiscard]] std::string pci_name(const Device& device);

/// Adds the files that the kernel has in sysfs for a device and its ports.
void describe(Tree& tree, const Device& device);

/// Adds to the device a symbolic link to a network interface of the kernel. rdma_cm uses this
/// device for the IP addresses of that interface.
void add_network_interface(Tree& tree, const Device& device, const std::string& interface);

} // namespace softverbs::sysfs
