// SPDX-License-Identifier: BSD-3-Clause
#include "open_device.hpp"

#include <algorithm>

#include <rdmabuf/device.hpp>

#include "usage.hpp"

namespace examples {

rdmabuf::Context open_device(const std::string& name) {
    if (name.empty()) {
        return rdmabuf::Context::open_first();
    }
    const rdmabuf::DeviceList devices;
    const bool known = std::ranges::any_of(
        devices, [&](const rdmabuf::Device& device) { return device.name() == name; });
    if (!known && !devices.empty()) {
        std::string names;
        for (const rdmabuf::Device& device : devices) {
            names += (names.empty() ? "" : ", ") + device.name();
        }
        throw UsageError("--device " + name + " does not exist; there is: " + names);
    }
    return rdmabuf::Context::open(name);
}

} // namespace examples
