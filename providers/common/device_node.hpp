// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/result.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// What to do about a device that cannot be opened, in the words of its driver.
struct OpenRemedies {
    std::string_view missing;
    std::string_view forbidden;
};

/// Opens a device for reading and writing, close-on-exec.
[[nodiscard]] Result<UniqueFd> open_device(const std::string& path, const OpenRemedies& remedies);

/// The names in a folder, sorted and without those that begin with a dot. None when the folder does
/// not exist.
[[nodiscard]] Result<std::vector<std::string>> list_folder(const std::string& path);

/// The first line of a small file, as in sysfs. None when it cannot be read.
[[nodiscard]] std::optional<std::string> read_line(const std::string& path);

/// The last component of where a symbolic link points to. Empty when it cannot be read.
[[nodiscard]] std::string link_name(const std::string& path);

} // namespace rdmabuf::detail
