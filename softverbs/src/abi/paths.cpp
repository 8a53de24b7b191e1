// SPDX-License-Identifier: BSD-3-Clause
#include "abi/paths.hpp"

#include <errno.h>

#include <algorithm>
#include <array>

#include "abi/sysfs_tree.hpp"
#include "cm/descriptors.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

/// Number of KernelPaths objects of this thread. If it is not 0, the paths that the thread opens
/// are not redirected.
thread_local unsigned kernel_paths = 0;

bool copy_path(std::string_view path, PathBuffer& target) {
    if (path.size() >= sizeof target) {
        return false;
    }
    std::memcpy(target, path.data(), path.size());
    target[path.size()] = '\0';
    return true;
}

/// Redirects the file /dev/infiniband/uverbs<N> of a software device to /dev/null. UCX ignores a
/// device if it cannot open this file for reading and writing. UCX does not use the file otherwise.
bool translate_device_file(std::string_view path, PathBuffer& target) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    const Guard guard;
    const auto& devices = process().devices;
    return std::ranges::any_of(devices,
                               [name](const auto& device) { return name == device->dev_name; }) &&
           copy_path("/dev/null", target);
}

/// Redirects access(2) and stat(2) of /dev/infiniband/rdma_cm to /dev/null, which is also a
/// character device. open(2) of this path calls cm::open_device() instead.
bool translate_connection_manager(std::string_view path, PathBuffer& target) {
    return path == cm::device_path && copy_path("/dev/null", target);
}

/// The table that redirect() searches. redirect() uses the first entry whose prefix matches and
/// whose translate() returns true.
constexpr std::array<ServedPath, 6> served_paths{{
    {cm::device_path, translate_connection_manager, cm::open_device},
    {"/dev/infiniband/", translate_device_file, nullptr},
    {"/sys/class/infiniband", sysfs::translate, nullptr},
    {"/sys/bus/pci/devices", sysfs::translate, nullptr},
    {"/sys/class/pci_bus", sysfs::translate, nullptr},
    {sysfs::pci_root, sysfs::translate, nullptr},
}};

} // namespace

Redirection redirect(const char* path, PathBuffer& target) {
    if (kernel_paths != 0) {
        return {path, nullptr};
    }
    // translate() may open files itself. While this KernelPaths object exists, the paths of these
    // files are not redirected.
    const KernelPaths kernel;
    const int saved_errno = errno;
    Redirection found{path, nullptr};
    const std::string_view wanted = path;
    for (const ServedPath& row : served_paths) {
        if (wanted.starts_with(row.prefix) && row.translate(wanted, target)) {
            found = {target, row.open};
            break;
        }
    }
    errno = saved_errno;
    return found;
}

KernelPaths::KernelPaths() noexcept {
    ++kernel_paths;
}

KernelPaths::~KernelPaths() {
    --kernel_paths;
}

} // namespace softverbs
