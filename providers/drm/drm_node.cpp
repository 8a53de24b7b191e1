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

/// Holds the name and the PCI address of a device, as read from sysfs. Without sysfs, the name is
/// taken from the path.
struct Identity {
    /// Name of the node: "card0", "renderD128".
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
    // The path can be a symbolic link, for example /dev/dri/by-path/pci-0000:00:02.0-render. The
    // name is therefore read from sysfs.
    if (std::string name = link_name(sysfs); !name.empty()) {
        found.name = std::move(name);
    }
    if (link_name(sysfs + "/device/subsystem") == "pci") {
        found.pci_address = link_name(sysfs + "/device");
    }
    return found;
}

/// Returns the name of the node's DRM driver. If the node is not a DRM node, the result is empty
/// and errno is set.
std::string driver_name(int fd) {
    std::array<char, 64> name{};
    drm_version version{};
    version.name = name.data();
    version.name_len = name.size();
    if (ioctl_retrying(fd, DRM_IOCTL_VERSION, &version) < 0) {
        return {};
    }
    // The kernel copies the part of the name that fits, and returns the full length in name_len.
    return {name.data(), std::min<std::size_t>(version.name_len, name.size())};
}

/// Returns an error if the node cannot create dumb buffers or cannot export dumb buffers, otherwise
/// std::nullopt.
std::optional<ErrorInfo> check_capabilities(int fd, const std::string& what) {
    const auto refuse = [&](int error, const char* function, const char* task) {
        return ErrorInfo{error, function, what + " cannot " + task + ": " + describe_errno(error),
                         "choose another node"};
    };
    // The capability DRM_CAP_DUMB_BUFFER is not queried: for drivers without displays, such as
    // vgem, the kernel returns EOPNOTSUPP even if the driver has dumb buffers. Instead, a dumb
    // buffer of size 0 is requested. A driver with dumb buffers then returns EINVAL, and a driver
    // without dumb buffers returns ENOSYS.
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
    // The kernel makes the first process that opens a primary node the DRM master. A display server
    // could then not become DRM master, so this process gives up the role. DROP_MASTER fails
    // without effect if this process is not the DRM master.
    ioctl_retrying(fd.get(), DRM_IOCTL_DROP_MASTER, nullptr);

    const std::string what = path + " (" + driver + ")";
    if (!wanted_driver.empty() && driver != wanted_driver) {
        return ErrorInfo{ENODEV, "ioctl(DRM_IOCTL_VERSION)",
                         what + " does not have the requested driver " + wanted_driver};
    }
    if (auto error = check_capabilities(fd.get(), what)) {
        return std::move(*error);
    }
    return DrmNode{.fd = std::move(fd),
                   .path = path,
                   .driver = driver,
                   .pci_address = std::move(identity.pci_address)};
}

/// Returns the names of the primary nodes in numeric order: "card2" before "card10".
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
        // `refused` gets the errno of the first node that cannot be used, and the error texts of
        // all these nodes.
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
