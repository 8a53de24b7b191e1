// SPDX-License-Identifier: BSD-3-Clause
#include "abi/paths.hpp"

#include <errno.h>

#include <algorithm>
#include <array>

#include "abi/sysfs.hpp"
#include "abi/sysfs_tree.hpp"
#include "cm/descriptors.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

/// Number of KernelPaths objects that exist in this thread.
thread_local unsigned kernel_paths = 0;

bool copy_path(std::string_view path, PathBuffer& target) {
    if (path.size() >= sizeof target) {
        return false;
    }
    std::memcpy(target, path.data(), path.size());
    target[path.size()] = '\0';
    return true;
}

/// /dev/infiniband/uverbs<N> of a software device is redirected to a character device that can be
/// opened for reading and writing, because UCX ignores a device whose file it cannot open. The file
/// has no other function.
bool translate_device_file(std::string_view path, PathBuffer& target) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    const Guard guard;
    const auto& devices = process().devices;
    return std::ranges::any_of(devices,
                               [name](const auto& device) { return name == device->dev_name; }) &&
           copy_path("/dev/null", target);
}

/// A program that checks access to /dev/infiniband/rdma_cm checks /dev/null instead, which is also
/// a character device.
bool translate_connection_manager(std::string_view path, PathBuffer& target) {
    return path == cm::device_path && copy_path("/dev/null", target);
}

/// The entries are tried in this order, and the first one that serves the path is used.
constexpr std::array<ServedPath, 5> served_paths{{
    {cm::device_path, translate_connection_manager, cm::open_device},
    {"/dev/infiniband/", translate_device_file, nullptr},
    {"/sys/class/infiniband", sysfs::translate, nullptr},
    {"/sys/bus/pci/devices", sysfs::translate, nullptr},
    {sysfs::pci_root, sysfs::translate, nullptr},
}};

} // namespace

Redirection redirect(const char* path, PathBuffer& target) {
    if (kernel_paths != 0) {
        return {path, nullptr};
    }
    // The functions of a table entry may open files themselves. The paths of these files are not
    // redirected.
    const KernelPaths kernel;
    const int saved_errno = errno;
    Redirection found{path, nullptr};
    const std::string_view wanted = path;
    for (const ServedPath& row : served_paths) {
        if (!wanted.starts_with(row.prefix)) {
            continue;
        }
        if (row.translate != nullptr && row.translate(wanted, target)) {
            found = {target, row.open};
            break;
        }
        if (row.translate == nullptr) {
            found = {path, row.open};
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
