// SPDX-License-Identifier: BSD-3-Clause
#include "device/sysfs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail::sysfs {

std::optional<std::string> read_line(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) {
        return std::nullopt;
    }
    // The attributes that this library reads have short lines, although a sysfs attribute can be as
    // long as one page.
    std::array<char, 1024> text{};
    const ssize_t length = ::read(file.get(), text.data(), text.size());
    if (length < 0) {
        return std::nullopt;
    }
    const std::string_view all(text.data(), static_cast<std::size_t>(length));
    return std::string(all.substr(0, all.find('\n')));
}

std::optional<std::vector<std::string>> entries(const std::string& directory) {
    struct Close {
        void operator()(DIR* open) const noexcept { ::closedir(open); }
    };
    const std::unique_ptr<DIR, Close> open(::opendir(directory.c_str()));
    if (open == nullptr) {
        return std::nullopt;
    }
    std::vector<std::string> names;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): readdir(3) is safe, because no other thread uses this
    // directory stream.
    while (const dirent* const entry = ::readdir(open.get())) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") {
            names.emplace_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::optional<std::string> real_path(const std::string& path) {
    std::array<char, PATH_MAX> real{};
    return ::realpath(path.c_str(), real.data()) != nullptr
               ? std::optional<std::string>(real.data())
               : std::nullopt;
}

std::optional<std::vector<std::string>> components(const std::string& path,
                                                   const std::string& directory) {
    const auto real = real_path(path);
    if (!real) {
        return std::nullopt;
    }
    std::string_view rest = *real;
    if (!rest.starts_with(directory) || rest.size() <= directory.size() ||
        rest[directory.size()] != '/') {
        errno = EXDEV;
        return std::nullopt;
    }
    rest.remove_prefix(directory.size());
    std::vector<std::string> names;
    while (!rest.empty()) {
        rest.remove_prefix(1); // the '/'
        const std::size_t length = std::min(rest.find('/'), rest.size());
        names.emplace_back(rest.substr(0, length));
        rest.remove_prefix(length);
    }
    return names;
}

std::string driver_name(const std::string& device, const std::filesystem::path& sys) {
    const std::filesystem::path about = sys / "class/infiniband" / device;
    std::error_code none;
    // Only rxe has the attribute "parent" (drivers/infiniband/sw/rxe/rxe_verbs.c). The attribute is
    // checked first, because in older kernels the link "device/driver" names the driver of the
    // Ethernet NIC below rxe.
    if (std::filesystem::exists(about / "parent", none)) {
        return "rxe";
    }
    return std::filesystem::read_symlink(about / "device/driver", none).filename().string();
}

} // namespace rdmabuf::detail::sysfs
