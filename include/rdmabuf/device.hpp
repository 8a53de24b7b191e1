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

/// An RDMA device of this machine, not yet opened. Holds the list it came from.
class RDMABUF_EXPORT Device {
  public:
    /// The name under /sys/class/infiniband, "mlx5_0".
    [[nodiscard]] std::string name() const;
    /// The node GUID in host byte order; 0 while the driver has not set one.
    [[nodiscard]] std::uint64_t guid() const noexcept;
    /// The kernel driver bound to it ("mlx5_core"), read from sysfs. "rxe" of Soft-RoCE; empty for
    /// other software devices, which have no parent.
    [[nodiscard]] std::string driver() const;

    [[nodiscard]] ibv_device* native() const noexcept { return device_; }

  private:
    friend class DeviceList;
    Device(std::shared_ptr<ibv_device*> list, ibv_device* device) noexcept
        : list_(std::move(list)), device_(device) {}

    std::shared_ptr<ibv_device*> list_;
    ibv_device* device_;
};

/// The RDMA devices of this machine at the time of construction. An empty list is not an error.
class RDMABUF_EXPORT DeviceList {
  public:
    /// @throws Error EPERM, ENOMEM, or ENOSYS (no kernel support: ib_uverbs is not loaded).
    ///         ibv_get_device_list(3).
    DeviceList();

    [[nodiscard]] std::size_t size() const noexcept { return devices_.size(); }
    [[nodiscard]] bool empty() const noexcept { return devices_.empty(); }
    [[nodiscard]] auto begin() const noexcept { return devices_.begin(); }
    [[nodiscard]] auto end() const noexcept { return devices_.end(); }
    [[nodiscard]] const Device& operator[](std::size_t i) const noexcept { return devices_[i]; }

    /// The first device. @throws Error ENODEV when there is none.
    [[nodiscard]] const Device& front() const;
    /// @throws Error ENODEV. The hint lists the devices there are or, where there is none, what to
    ///         check: the driver, ib_uverbs, /dev/infiniband inside a container.
    [[nodiscard]] const Device& find(std::string_view name) const;
    /// @param guid  in host byte order. @throws Error ENODEV, as for a name.
    [[nodiscard]] const Device& find(std::uint64_t guid) const;

  private:
    std::vector<Device> devices_;
};

/// "0x0002c903000ae254" as the IB tools print it: four groups of four digits,
/// "0002:c903:000a:e254".
[[nodiscard]] RDMABUF_EXPORT std::string guid_to_string(std::uint64_t guid);

} // namespace rdmabuf
