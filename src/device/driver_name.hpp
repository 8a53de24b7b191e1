// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>

namespace rdmabuf::detail {

/// What Device::driver() says.
/// @param device  its name
/// @param sys     where sysfs is
[[nodiscard]] std::string driver_name(const std::string& device,
                                      const std::filesystem::path& sys = "/sys");

} // namespace rdmabuf::detail
