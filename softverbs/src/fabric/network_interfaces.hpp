// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ifaddrs.h>

#include <memory>

namespace softverbs::fabric {

/// Calls @p function with the ifaddrs structure of each address of the network interfaces of this
/// machine. Returns false and sets errno if getifaddrs(3) fails.
template <class Function>
bool for_each_interface_address(const Function& function) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) {
        return false;
    }
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr != nullptr) {
            function(*entry);
        }
    }
    return true;
}

} // namespace softverbs::fabric
