// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/context.hpp>

#include "machine.hpp"

namespace rdmabuf::tools::doctor {

/// An RDMA device that libibverbs lists, and the result of opening it.
struct OpenedDevice {
    std::string name;
    /// The open device; empty if it could not be opened.
    std::optional<Context> context = std::nullopt;
    /// The errno value with which opening failed, described by `message`; 0 if it succeeded.
    int error = 0;
    std::string message = {};
};

/// The RDMA devices that libibverbs lists, opened if possible. The list is empty for a recorded
/// machine (see Machine::recorded()).
class Devices {
  public:
    /// Opens the devices, and adds their data-direct functions to Machine::topology().
    /// @param only  the name of the only device to list and open; empty for all
    Devices(Machine& machine, std::string_view only);

    [[nodiscard]] const std::vector<OpenedDevice>& all() const noexcept { return devices_; }
    /// Returns the open device with this name; nullptr if it is not open.
    [[nodiscard]] const Context* find(std::string_view name) const noexcept;
    /// Returns the entry of the device with this name; nullptr if libibverbs does not list it.
    [[nodiscard]] const OpenedDevice* listed(std::string_view name) const noexcept;
    /// Returns what libibverbs wrote to stderr, for example about a provider that it could not
    /// load, and the error of ibv_get_device_list(3).
    [[nodiscard]] const std::string& warnings() const noexcept { return warnings_; }

  private:
    void open(std::string_view only);

    std::vector<OpenedDevice> devices_;
    std::string warnings_;
};

} // namespace rdmabuf::tools::doctor
