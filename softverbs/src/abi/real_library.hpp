// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softverbs {

/// Returns the default version of the symbol @p name in the real libibverbs; null if it does not
/// exist.
[[nodiscard]] void* real_symbol(const char* name);

/// While an object of this class exists, ibv_get_device_list() returns only the devices of the real
/// libibverbs to this thread. Some functions of libibverbs call ibv_get_device_list() themselves,
/// and cannot handle devices of softverbs.
class RealDevicesOnly {
  public:
    RealDevicesOnly() noexcept;
    ~RealDevicesOnly();
    RealDevicesOnly(const RealDevicesOnly&) = delete;
    RealDevicesOnly& operator=(const RealDevicesOnly&) = delete;

    [[nodiscard]] static bool active() noexcept;
};

} // namespace softverbs
