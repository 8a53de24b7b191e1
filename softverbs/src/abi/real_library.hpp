// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softverbs {

/// The definition of @p name in the real libibverbs, under its default version; null when it has
/// none.
[[nodiscard]] void* real_symbol(const char* name);

/// While it exists, ibv_get_device_list() returns the real library's list to the calling thread.
/// For functions of the real library that call ibv_get_device_list() and use its own devices'
/// structure.
class RealDevicesOnly {
  public:
    RealDevicesOnly() noexcept;
    ~RealDevicesOnly();
    RealDevicesOnly(const RealDevicesOnly&) = delete;
    RealDevicesOnly& operator=(const RealDevicesOnly&) = delete;

    [[nodiscard]] static bool active() noexcept;
};

} // namespace softverbs
