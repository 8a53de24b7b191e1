// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The following functions read sysfs, by functions of the C library that softverbs intercepts for
/// the files of its devices.
namespace rdmabuf::detail::sysfs {

/// Returns the first line of a sysfs attribute, without the newline. Returns std::nullopt if the
/// file cannot be read; errno is then the cause.
[[nodiscard]] std::optional<std::string> read_line(const std::string& path);

/// Returns the sorted names in a directory, without "." and "..". Returns std::nullopt if the
/// directory cannot be read; errno is then the cause.
[[nodiscard]] std::optional<std::vector<std::string>> entries(const std::string& directory);

/// Resolves the symbolic links in @p path, and returns the components of the path below
/// @p directory. Returns std::nullopt if the path cannot be resolved (errno is the cause, for
/// example ENOENT), or does not lead to a file below @p directory (EXDEV).
/// @param directory  a path without symbolic links
[[nodiscard]] std::optional<std::vector<std::string>> components(const std::string& path,
                                                                 const std::string& directory);

/// Returns @p path with all symbolic links resolved. Returns std::nullopt if the path cannot be
/// resolved; errno is then the cause.
[[nodiscard]] std::optional<std::string> real_path(const std::string& path);

/// Returns the name of the kernel driver of an RDMA device, as Device::driver() does.
/// @param device  the name of the RDMA device, for example "mlx5_0"
/// @param sys     the directory where sysfs is mounted
[[nodiscard]] std::string driver_name(const std::string& device,
                                      const std::filesystem::path& sys = "/sys");

} // namespace rdmabuf::detail::sysfs
