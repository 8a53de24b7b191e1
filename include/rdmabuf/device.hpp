// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// An RDMA device of this machine, which is not open yet: create a Context to open the device. The
/// object keeps alive the list of ibv_get_device_list(3) that contains the device.
class RDMABUF_EXPORT Device {
  public:
    /// Returns the name of the device in /sys/class/infiniband, for example "mlx5_0".
    [[nodiscard]] std::string name() const;
    /// Returns the node GUID in host byte order, or 0 if the driver has not set the GUID yet.
    [[nodiscard]] std::uint64_t guid() const noexcept;
    /// Returns the name of the kernel driver of the device, read from sysfs, for example
    /// "mlx5_core". Returns "rxe" for Soft-RoCE, and an empty string for other software devices.
    [[nodiscard]] std::string driver() const;

    [[nodiscard]] ibv_device* native() const noexcept { return device_; }

  private:
    friend class DeviceList;
    Device(std::shared_ptr<ibv_device*> list, ibv_device* device) noexcept
        : list_(std::move(list)), device_(device) {}

    std::shared_ptr<ibv_device*> list_;
    ibv_device* device_;
};

/// A list of the RDMA devices of this machine at the time of the construction. An empty list is not
/// an error.
class RDMABUF_EXPORT DeviceList {
  public:
    /// Lists the devices. See ibv_get_device_list(3).
    /// @throws Error ENOSYS if the kernel module ib_uverbs is not loaded; EPERM if permission is
    ///         denied; ENOMEM if there is not enough memory for the list
    DeviceList();

    [[nodiscard]] std::size_t size() const noexcept { return devices_.size(); }
    [[nodiscard]] bool empty() const noexcept { return devices_.empty(); }
    [[nodiscard]] auto begin() const noexcept { return devices_.begin(); }
    [[nodiscard]] auto end() const noexcept { return devices_.end(); }
    [[nodiscard]] const Device& operator[](std::size_t i) const noexcept { return devices_[i]; }

    /// Returns the first device of the list.
    /// @throws Error ENODEV if the list is empty
    [[nodiscard]] const Device& front() const;
    /// Returns the device with the name @p name.
    /// @throws Error ENODEV if the list does not contain the device. The error text lists all
    ///         devices. If the list is empty, the error text names the likely causes: the NIC's
    ///         driver or ib_uverbs is not loaded, or a container has no /dev/infiniband.
    [[nodiscard]] const Device& find(std::string_view name) const;
    /// Returns the device with the node GUID @p guid, which is in host byte order.
    /// @throws Error ENODEV if the list does not contain the device. The error text is the same as
    ///         that of find() for a name.
    [[nodiscard]] const Device& find(std::uint64_t guid) const;

  private:
    std::vector<Device> devices_;
};

/// Formats a GUID as ibv_devinfo(1) does: 0x0002c903000ae254 as "0002:c903:000a:e254".
/// @param guid  in host byte order
[[nodiscard]] RDMABUF_EXPORT std::string guid_to_string(std::uint64_t guid);

} // namespace rdmabuf
