// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/check.hpp>

#include "device/sysfs.hpp"

namespace rdmabuf {
namespace {

/// Returns the error hint for a device that was not found: a list of the devices on this machine,
/// or the possible causes if there are no devices.
std::string devices_there_are(const std::vector<Device>& devices, const std::string& wanted) {
    if (devices.empty()) {
        return wanted +
               ": this machine shows no RDMA device. Check that the NIC's driver and ib_uverbs are "
               "loaded (ls /sys/class/infiniband), that rdma-core has a provider for it "
               "(ibverbs-providers) and, in a container, that /dev/infiniband is passed in";
    }
    std::string hint = wanted + ": there is no such device; there are";
    const char* separator = " ";
    for (const Device& device : devices) {
        hint.append(separator).append(device.name()).append(" (GUID ");
        hint.append(guid_to_string(device.guid())).append(")");
        separator = ", ";
    }
    return hint;
}

} // namespace

std::string Device::name() const {
    return ibv_get_device_name(device_);
}

std::uint64_t Device::guid() const noexcept {
    return be64toh(ibv_get_device_guid(device_));
}

std::string Device::driver() const {
    return detail::sysfs::driver_name(name());
}

DeviceList::DeviceList() {
    int count = 0;
    errno = 0;
    ibv_device** const list = detail::check_pointer(
        ibv_get_device_list(&count), "ibv_get_device_list", [](int error) -> std::string {
            return error == ENOSYS ? "the kernel has no RDMA support: load ib_uverbs or, on a "
                                     "machine without a NIC, run the program by softverbs run -- "
                                     "PROGRAM"
                                   : "";
        });
    const std::shared_ptr<ibv_device*> shared(list, &ibv_free_device_list);
    devices_.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
        devices_.push_back(Device(shared, list[i]));
    }
}

const Device& DeviceList::find(std::string_view name) const {
    const auto found = std::find_if(devices_.begin(), devices_.end(),
                                    [name](const Device& device) { return device.name() == name; });
    if (found == devices_.end()) {
        throw Error(ENODEV, "ibv_get_device_list",
                    devices_there_are(devices_, "\"" + std::string(name) + "\""));
    }
    return *found;
}

const Device& DeviceList::find(std::uint64_t guid) const {
    const auto found = std::find_if(devices_.begin(), devices_.end(),
                                    [guid](const Device& device) { return device.guid() == guid; });
    if (found == devices_.end()) {
        throw Error(ENODEV, "ibv_get_device_list",
                    devices_there_are(devices_, "GUID " + guid_to_string(guid)));
    }
    return *found;
}

const Device& DeviceList::front() const {
    if (devices_.empty()) {
        throw Error(ENODEV, "ibv_get_device_list", devices_there_are(devices_, "any device"));
    }
    return devices_.front();
}

std::string guid_to_string(std::uint64_t guid) {
    std::array<char, 20> text{};
    std::snprintf(
        text.data(), text.size(), "%04x:%04x:%04x:%04x",
        static_cast<unsigned>(guid >> 48U & 0xffffU), static_cast<unsigned>(guid >> 32U & 0xffffU),
        static_cast<unsigned>(guid >> 16U & 0xffffU), static_cast<unsigned>(guid & 0xffffU));
    return text.data();
}

} // namespace rdmabuf
