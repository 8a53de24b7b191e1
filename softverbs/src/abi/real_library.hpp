// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softverbs {

/// Returns the definition of @p name in the real libibverbs, with its default symbol version; null
/// if there is none.
[[nodiscard]] void* real_symbol(const char* name);

/// While an object of this class exists, ibv_get_device_list() returns only the devices of the real
/// libibverbs to the calling thread. Functions of the real library need this if they call
/// ibv_get_device_list() and expect devices with the structure of that library.
class RealDevicesOnly {
  public:
    RealDevicesOnly() noexcept;
    ~RealDevicesOnly();
    RealDevicesOnly(const RealDevicesOnly&) = delete;
    RealDevicesOnly& operator=(const RealDevicesOnly&) = delete;

    [[nodiscard]] static bool active() noexcept;
};

} // namespace softverbs
