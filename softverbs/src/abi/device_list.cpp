// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "abi/entry.hpp"
#include "abi/paths.hpp"

namespace softverbs {

namespace {

/// A device list returned to the program: the softverbs devices, followed by the devices of the
/// real libibverbs.
struct DeviceList {
    std::vector<ibv_device*> devices; // null-terminated
    ibv_device** real = nullptr;
};

/// All device lists that the program has not freed yet, protected by Process::lock. The vector is
/// never destroyed, because a program may free a list during its exit.
std::vector<std::unique_ptr<DeviceList>>& lists() {
    static auto* const all = new std::vector<std::unique_ptr<DeviceList>>;
    return *all;
}

void hold_devices(bool hold) {
    for (const auto& device : process().devices) {
        device->holders += hold ? 1U : ~0U;
    }
    process().live[SOFTVERBS_LIST] += hold ? std::size_t{1} : ~std::size_t{0};
}

ibv_device** make_list(ibv_device** real, int real_count) {
    auto list = std::make_unique<DeviceList>();
    for (const auto& device : process().devices) {
        list->devices.push_back(device.get());
    }
    list->devices.insert(list->devices.end(), real, real + real_count);
    list->devices.push_back(nullptr);
    list->real = real;
    lists().push_back(std::move(list));
    hold_devices(true);
    return lists().back()->devices.data();
}

/// Removes the device list @p given from lists() and returns the list. Returns null if softverbs
/// did not create this list.
std::unique_ptr<DeviceList> take_list(ibv_device** given) {
    const auto found = std::ranges::find_if(
        lists(), [given](const auto& list) { return list->devices.data() == given; });
    if (found == lists().end()) {
        return nullptr;
    }
    std::unique_ptr<DeviceList> list = std::move(*found);
    lists().erase(found);
    hold_devices(false);
    return list;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY ibv_device** ibv_get_device_list(int* num_devices) {
    const fabric::NoCancellation not_cancelled;
    if (RealDevicesOnly::active()) {
        const KernelPaths kernel;
        return forward<ibv_get_device_list>("ibv_get_device_list", num_devices);
    }
    bool hidden = false;
    {
        const Guard guard;
        if (const int error = process().faults.enter("ibv_get_device_list"); error != 0) {
            return fail(error);
        }
        hidden = process().real_devices_hidden;
    }
    // While this KernelPaths object exists, the real library reads the sysfs of the kernel instead
    // of the files that softverbs generates. The real ibv_get_device_list() returns null if the
    // kernel does not support RDMA.
    const KernelPaths kernel;
    int count = 0;
    ibv_device** const real =
        hidden ? nullptr : forward<ibv_get_device_list>("ibv_get_device_list", &count);
    try {
        const Guard guard;
        ibv_device** const made = make_list(real, real != nullptr ? count : 0);
        if (num_devices != nullptr) {
            *num_devices = static_cast<int>(lists().back()->devices.size() - 1);
        }
        return made;
    } catch (const std::bad_alloc&) {
        if (real != nullptr) {
            forward<ibv_free_device_list>("ibv_free_device_list", real);
        }
        return fail(ENOMEM);
    }
}

SOFTVERBS_ENTRY void ibv_free_device_list(ibv_device** list) {
    const fabric::NoCancellation not_cancelled;
    std::unique_ptr<DeviceList> taken;
    {
        const Guard guard;
        taken = take_list(list);
    }
    // If the device list is not in lists(), the real library has created it: before softverbs was
    // loaded, or while RealDevicesOnly::active() was true.
    ibv_device** const real = taken != nullptr ? taken->real : list;
    if (real != nullptr) {
        forward<ibv_free_device_list>("ibv_free_device_list", real);
    }
}

SOFTVERBS_ENTRY const char* ibv_get_device_name(ibv_device* device) {
    return ours(device) != nullptr ? device->name
                                   : forward<ibv_get_device_name>("ibv_get_device_name", device);
}

SOFTVERBS_ENTRY __be64 ibv_get_device_guid(ibv_device* device) {
    const Device* const known = ours(device);
    if (known == nullptr) {
        return forward<ibv_get_device_guid>("ibv_get_device_guid", device);
    }
    const Guard guard;
    return known->guid;
}

SOFTVERBS_ENTRY int ibv_get_device_index(ibv_device* device) {
    // The index -1 means "unknown". Any other number could be the index of a kernel device.
    return ours(device) != nullptr ? -1
                                   : forward<ibv_get_device_index>("ibv_get_device_index", device);
}
