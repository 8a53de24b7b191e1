// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Reading of sysfs. All functions use the C library's open(), opendir() and realpath(), because
/// softverbs redirects these for the files of its devices.
namespace rdmabuf::detail::sysfs {

/// The first line of an attribute, without the newline. Empty if it cannot be read: errno says why.
[[nodiscard]] std::optional<std::string> read_line(const std::string& path);

/// The names in a directory, sorted, without "." and "..". Empty if there is no such directory:
/// errno says why.
[[nodiscard]] std::optional<std::vector<std::string>> entries(const std::string& directory);

/// The real path of @p path relative to @p directory, split at '/'. Empty if it does not exist, or
/// if a symbolic link leads out of the directory: errno is ENOENT or EXDEV, for example.
/// @param directory  a real path
[[nodiscard]] std::optional<std::vector<std::string>> components(const std::string& path,
                                                                 const std::string& directory);

/// The real path; empty if it does not exist.
[[nodiscard]] std::optional<std::string> real_path(const std::string& path);

/// Returns the name of the kernel driver of a device, as Device::driver() does.
/// @param device  the name of the device
/// @param sys     the directory of sysfs
[[nodiscard]] std::string driver_name(const std::string& device,
                                      const std::filesystem::path& sys = "/sys");

} // namespace rdmabuf::detail::sysfs
