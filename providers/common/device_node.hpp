// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// Holds the remedies for the error text of open_device(): `missing` if the device does not exist,
/// `forbidden` if the process has no permission to open the device.
struct OpenRemedies {
    std::string_view missing;
    std::string_view forbidden;
};

/// Opens a device for reading and writing. The descriptor is close-on-exec.
/// @return the descriptor, or an error with the errno of open(2) and a remedy
[[nodiscard]] Result<UniqueFd> open_device(const std::string& path, const OpenRemedies& remedies);

/// Returns the sorted names of the files in a folder. Names that begin with a dot are left out. The
/// list is empty if the folder does not exist.
[[nodiscard]] Result<std::vector<std::string>> list_folder(const std::string& path);

/// Returns the first line of a small file, such as a sysfs attribute, or at most its first 256
/// bytes. Returns std::nullopt if the file cannot be read.
[[nodiscard]] std::optional<std::string> read_line(const std::string& path);

/// Returns the last path component of the target of a symbolic link, or an empty string if the link
/// cannot be read.
[[nodiscard]] std::string link_name(const std::string& path);

} // namespace rdmabuf::detail
