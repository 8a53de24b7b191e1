// SPDX-License-Identifier: BSD-3-Clause
#include "common/device_node.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <memory>
#include <utility>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {
namespace {

struct CloseFolder {
    void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

} // namespace

Result<UniqueFd> open_device(const std::string& path, const OpenRemedies& remedies) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd) {
        return fd;
    }
    const int error = errno;
    switch (error) {
        case ENOENT:
        case ENODEV:
        case ENXIO:
            return ErrorInfo{error, "open", "there is no device at " + path, remedies.missing};
        case EACCES:
        case EPERM:
            return ErrorInfo{error, "open", "this process has no permission to open " + path,
                             remedies.forbidden};
        default:
            return ErrorInfo{error, "open", path + " cannot be opened: " + describe_errno(error)};
    }
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
    const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
    if (folder == nullptr && errno != ENOENT) {
        const int error = errno;
        return ErrorInfo{error, "opendir", path + " cannot be read: " + describe_errno(error)};
    }
    std::vector<std::string> names;
    while (folder != nullptr) {
        const dirent* const entry = ::readdir(folder.get());
        if (entry == nullptr) {
            break;
        }
        if (entry->d_name[0] != '.') {
            names.emplace_back(entry->d_name);
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::optional<std::string> read_line(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) {
        return std::nullopt;
    }
    std::array<char, 256> buffer{};
    const ssize_t length = ::read(fd.get(), buffer.data(), buffer.size());
    if (length < 0) {
        return std::nullopt;
    }
    const std::string text(buffer.data(), static_cast<std::size_t>(length));
    return text.substr(0, text.find('\n'));
}

std::string link_name(const std::string& path) {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
    if (length < 0) {
        return {};
    }
    const std::string text(target.data(), static_cast<std::size_t>(length));
    // If the text has no slash, rfind() returns npos. Because npos + 1 is 0, substr() returns the
    // whole text.
    return text.substr(text.rfind('/') + 1);
}

} // namespace rdmabuf::detail
