// SPDX-License-Identifier: BSD-3-Clause
#include "drm/drm_node.hpp"

#include <drm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>

#include "base/file_descriptor.hpp"
#include "common/device_node.hpp"

namespace rdmabuf::detail {
namespace {

constexpr const char* folder = "/dev/dri";
constexpr const char* create_call = "ioctl(DRM_IOCTL_MODE_CREATE_DUMB)";

/// What sysfs has on the character device behind @p fd; without sysfs, what its path tells.
struct Identity {
    /// "card0", "renderD128".
    std::string name;
    std::string pci_address;
};

Identity identify(int fd, const std::string& path) {
    Identity found{.name = path.substr(path.rfind('/') + 1), .pci_address = {}};
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        return found;
    }
    const std::string sysfs = "/sys/dev/char/" + std::to_string(major(status.st_rdev)) + ":" +
                              std::to_string(minor(status.st_rdev));
    // The path may be a link: /dev/dri/by-path/pci-0000:00:02.0-render.
    if (std::string name = link_name(sysfs); !name.empty()) {
        found.name = std::move(name);
    }
    if (link_name(sysfs + "/device/subsystem") == "pci") {
        found.pci_address = link_name(sysfs + "/device");
    }
    return found;
}

/// Empty, with errno, when the node is not a DRM one.
std::string driver_name(int fd) {
    std::array<char, 64> name{};
    drm_version version{};
    version.name = name.data();
    version.name_len = name.size();
    if (ioctl_retrying(fd, DRM_IOCTL_VERSION, &version) < 0) {
        return {};
    }
    // The kernel fills what fits and tells how long the name is.
    return {name.data(), std::min<std::size_t>(version.name_len, name.size())};
}

/// Why the device behind @p fd cannot make dumb buffers and export them, if it cannot.
std::optional<ErrorInfo> check_capabilities(int fd, const std::string& what) {
    const auto refuse = [&](int error, const char* function, const char* task) {
        return ErrorInfo{error, function, what + " cannot " + task + ": " + describe_errno(error),
                         "choose another node"};
    };
    // DRM_CAP_DUMB_BUFFER would be the question to ask, but drivers without displays are not asked:
    // for vgem, which makes dumb buffers, the kernel answers EOPNOTSUPP. An empty picture is
    // refused as such (EINVAL) by all that make them, and as an unknown call (ENOSYS) by the rest.
    drm_mode_create_dumb empty{};
    const int create_error = ioctl_retrying(fd, DRM_IOCTL_MODE_CREATE_DUMB, &empty) < 0 ? errno : 0;
    if (create_error != 0 && create_error != EINVAL) {
        return refuse(create_error, create_call, "make dumb buffers");
    }
    drm_get_cap prime{.capability = DRM_CAP_PRIME, .value = 0};
    const int prime_error = ioctl_retrying(fd, DRM_IOCTL_GET_CAP, &prime) < 0 ? errno : 0;
    if (prime_error != 0 || (prime.value & DRM_PRIME_CAP_EXPORT) == 0) {
        return refuse(prime_error != 0 ? prime_error : ENOTSUP, "ioctl(DRM_IOCTL_GET_CAP)",
                      "export dma-bufs");
    }
    return std::nullopt;
}

Result<DrmNode> open_node(const std::string& path, const std::string& wanted_driver) {
    auto opened = open_device(
        path, {.missing = "load a DRM driver; vgem (modprobe vgem) needs no hardware",
               .forbidden = "add the user to the group of the device (video), or run as root"});
    if (!opened) {
        return opened.error_info();
    }
    UniqueFd fd = *std::move(opened);

    Identity identity = identify(fd.get(), path);
    if (identity.name.rfind("render", 0) == 0) {
        return ErrorInfo{EACCES, create_call,
                         path +
                             " is a render node, and render nodes cannot make dumb "
                             "buffers",
                         "use the device's primary node, /dev/dri/cardN"};
    }
    const std::string driver = driver_name(fd.get());
    if (driver.empty()) {
        const int error = errno;
        return ErrorInfo{error, "ioctl(DRM_IOCTL_VERSION)",
                         path + " is not a DRM device: " + describe_errno(error),
                         "use a primary node, /dev/dri/cardN"};
    }
    // Whoever opens a primary node first becomes its master, and a display server that starts later
    // would find the place taken. It fails harmlessly for everybody else.
    ioctl_retrying(fd.get(), DRM_IOCTL_DROP_MASTER, nullptr);

    const std::string what = path + " (" + driver + ")";
    if (!wanted_driver.empty() && driver != wanted_driver) {
        return ErrorInfo{ENODEV, "ioctl(DRM_IOCTL_VERSION)",
                         what + " is not driven by " + wanted_driver};
    }
    if (auto error = check_capabilities(fd.get(), what)) {
        return std::move(*error);
    }
    return DrmNode{.fd = std::move(fd),
                   .path = path,
                   .driver = driver,
                   .pci_address = std::move(identity.pci_address)};
}

/// The primary nodes: "card2" before "card10".
Result<std::vector<std::string>> list_primary_nodes() {
    auto listed = list_folder(folder);
    if (listed) {
        std::erase_if(*listed, [](const std::string& name) { return name.rfind("card", 0) != 0; });
        std::stable_sort(listed->begin(), listed->end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    }
    return listed;
}

} // namespace

Result<DrmNode> open_drm_node(const DrmOptions& options) {
    if (!options.path.empty()) {
        return open_node(options.path, options.driver);
    }
    auto listed = list_primary_nodes();
    if (!listed) {
        return listed.error_info();
    }
    std::optional<ErrorInfo> refused;
    for (const std::string& name : *listed) {
        auto node = open_node(std::string(folder) + "/" + name, options.driver);
        if (node) {
            return node;
        }
        // The errno is that of the first node; the reason names all nodes.
        const ErrorInfo& error = node.error_info();
        refused = refused ? ErrorInfo(refused->error(), refused->function(),
                                      refused->reason() + "; " + error.hint())
                          : ErrorInfo(error.error(), error.function(), error.hint());
    }
    if (refused) {
        return std::move(*refused);
    }
    return ErrorInfo{ENOENT, "open", std::string("there is no DRM primary node under ") + folder,
                     "load a DRM driver; vgem (modprobe vgem) needs no hardware"};
}

} // namespace rdmabuf::detail
