// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

#include <rdmabuf/topology.hpp>

#include "device/topology_reader.hpp"
#include "device/verbs_extensions.hpp"

namespace rdmabuf {

const char* to_string(PathType type) noexcept {
    switch (type) {
        case PathType::loc:
            return "LOC";
        case PathType::pix:
            return "PIX";
        case PathType::pxb:
            return "PXB";
        case PathType::c2c:
            return "C2C";
        case PathType::phb:
            return "PHB";
        case PathType::node:
            return "NODE";
        case PathType::sys:
            return "SYS";
        case PathType::unknown:
            break;
    }
    return "unknown";
}

Topology Topology::read(const std::filesystem::path& root) {
    return detail::TopologyReader((root / "sys").string()).read();
}

const Nic* Topology::find_nic(std::string_view name) const& noexcept {
    const auto found = std::find_if(nics_.begin(), nics_.end(),
                                    [name](const Nic& nic) { return nic.name == name; });
    return found != nics_.end() ? &*found : nullptr;
}

const PciFunction* Topology::find_pci_function(const PciAddress& address) const& noexcept {
    const auto found = std::lower_bound(
        functions_.begin(), functions_.end(), address,
        [](const PciFunction& each, const PciAddress& wanted) { return each.address < wanted; });
    return found != functions_.end() && found->address == address ? &*found : nullptr;
}

Availability Topology::set_data_direct(std::string_view nic, std::string_view sysfs_path) {
    const auto device = std::find_if(nics_.begin(), nics_.end(),
                                     [nic](const Nic& each) { return each.name == nic; });
    if (device == nics_.end()) {
        return Availability::no("there is no RDMA device \"" + std::string(nic) +
                                "\" in this topology");
    }
    const std::size_t slash = sysfs_path.rfind('/');
    const std::string_view name =
        slash == std::string_view::npos ? sysfs_path : sysfs_path.substr(slash + 1);
    const auto address = PciAddress::parse(name);
    if (!address) {
        // Use append() here and not operator+, for which g++ 12 gives a false warning in this place
        // (-Wrestrict at -O3).
        std::string reason = "\"";
        reason.append(sysfs_path).append("\" is not a PCI function");
        return Availability::no(std::move(reason));
    }
    const PciFunction* const function = find_pci_function(*address);
    if (function == nullptr) {
        return Availability::no("the data-direct function " + rdmabuf::to_string(*address) +
                                " of " + device->name + " is not in /sys/bus/pci/devices");
    }
    device->data_direct = *function;
    return Availability::yes("data-direct function " + rdmabuf::to_string(*address));
}

Availability Topology::query_data_direct(const Context& context) {
    if (context.native() == nullptr) {
        return Availability::no("the context is closed");
    }
    using GetSysfsPath = int (*)(ibv_context*, char*, std::size_t);
    const auto get_sysfs_path = reinterpret_cast<GetSysfsPath>(
        detail::find_mlx5_function("mlx5dv_get_data_direct_sysfs_path"));
    if (get_sysfs_path == nullptr) {
        return Availability::no(
            "there is no mlx5dv_get_data_direct_sysfs_path(): libmlx5 is not loaded, because this "
            "machine has no mlx5 NIC, or is older than rdma-core 54");
    }
    std::array<char, PATH_MAX> path{};
    switch (const int error = get_sysfs_path(context.native(), path.data(), path.size()); error) {
        case 0:
            return set_data_direct(context.device_name(), path.data());
        case ENODEV:
            return Availability::no(context.device_name() + " has no data-direct function");
        case EOPNOTSUPP:
        case EPROTONOSUPPORT:
            return Availability::no(context.device_name() +
                                    " is not an mlx5 device, or the kernel is older than 6.12");
        default:
            return Availability::no("mlx5dv_get_data_direct_sysfs_path() fails: " +
                                    std::generic_category().message(error));
    }
}

} // namespace rdmabuf
