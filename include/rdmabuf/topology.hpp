// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/availability.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/pci_function.hpp>

namespace rdmabuf {

namespace detail {
class TopologyReader;
} // namespace detail

/// The distance between memory and a NIC, from near to far. The names are NCCL's
/// (src/include/graph.h) and those of `nvidia-smi topo -m`.
enum class PathType : std::uint8_t {
    /// The memory is on the NIC itself.
    loc,
    /// At most one PCIe switch lies between them.
    pix,
    /// Several PCIe switches lie between them, but no host bridge.
    pxb,
    /// The GPU is connected to the CPU by a coherent chip-to-chip link (NVLink-C2C), and the NIC to
    /// the same CPU by PCIe. NCCL calls this path P2C.
    c2c,
    /// The path goes through one PCIe host bridge. Also the path to host memory of the NIC's NUMA
    /// node.
    phb,
    /// The path goes through two host bridges of one NUMA node.
    node,
    /// The path goes through the interconnect between NUMA nodes.
    sys,
    /// sysfs does not describe the path: Path::reason.
    unknown,
};

/// "PIX", as NCCL writes it; "unknown" for PathType::unknown.
[[nodiscard]] RDMABUF_EXPORT const char* to_string(PathType type) noexcept;

/// The path between memory and a NIC.
struct Path {
    PathType type = PathType::unknown;
    /// Number of PCI bridges on the path. Switches count twice, once for each port.
    unsigned hops = 0;
    /// For PathType::sys: the distance of the two NUMA nodes in the firmware's table, 10 for the
    /// same node. Empty if the kernel does not report it.
    std::optional<unsigned> numa_distance = std::nullopt;
    /// Whether this is the path to the data-direct function of the NIC. Registration then needs
    /// RegistrationPath::dmabuf_data_direct.
    bool data_direct = false;
    /// In Gbit/s: the slowest PCIe link between the NIC and the nearest common ancestor, or the
    /// speed of the NIC's fastest active port if that is lower. Empty if neither is known.
    std::optional<double> bandwidth = std::nullopt;
    /// Why the type is unknown, as a sentence without a full stop; otherwise empty.
    std::string reason = {};
};

/// An RDMA device, as sysfs describes it.
struct Nic {
    /// Its name under /sys/class/infiniband, "mlx5_0".
    std::string name;
    /// Empty for a device that is not a PCI function (Soft-RoCE), or if sysfs does not describe it:
    /// see `reason`. For a subfunction, this is the PCI function that it belongs to.
    std::optional<PciFunction> pci = std::nullopt;
    /// The PCI function that accesses GPU memory for the NIC (mlx5 data direct, ConnectX-8), if
    /// Topology::query_data_direct() or set_data_direct() found one.
    std::optional<PciFunction> data_direct = std::nullopt;
    /// Whether a port is active. Empty if sysfs does not report the state of any port.
    std::optional<bool> active = std::nullopt;
    /// In Gbit/s: the rate of the fastest active port. Empty if unknown.
    std::optional<double> port_speed = std::nullopt;
    /// Why `pci` is empty; otherwise empty.
    std::string reason = {};
};

/// Where memory is: the device that holds it, or the NUMA node of host memory. locate_memory()
/// returns it for an address.
struct MemoryLocation {
    /// The device whose memory it is. Empty for host memory.
    std::optional<PciAddress> device = std::nullopt;
    /// The NUMA node of host memory. Not used if `device` is set.
    std::optional<int> numa_node = std::nullopt;
    /// Whether a coherent chip-to-chip link connects the device to its CPU. sysfs does not report
    /// this, the device's driver does: Allocation::c2c.
    bool c2c = false;
    /// Why neither of the first two is known; otherwise empty.
    std::string reason = {};
};

/// A NIC in the list that Topology::nearest() returns.
struct RankedNic {
    std::string name;
    Path path;
    /// 0 for the nearest NICs. NICs that are equally near and equally fast have the same rank.
    unsigned rank = 0;
    /// False if all ports of the NIC are known to be inactive. Such NICs are last in the list.
    bool usable = true;
};

/// The PCI functions, NUMA nodes and NICs of a machine, and the distances between them. A snapshot
/// of sysfs: later changes of the machine, such as a port that becomes active, are not in it.
class RDMABUF_EXPORT Topology {
  public:
    /// Reads /sys below @p root. A test may pass the directory of another tree. Missing or
    /// malformed files cause no exception: the values are empty, and problems() names malformed
    /// files, missing directories, and links of devices that lead out of /sys/devices. About eight
    /// small files are read for each PCI function.
    [[nodiscard]] static Topology read(const std::filesystem::path& root = "/");

    // Spans and pointers are valid as long as this object is neither assigned nor destroyed.

    /// The RDMA devices, ordered by PCI address and name.
    [[nodiscard]] std::span<const Nic> nics() const noexcept { return nics_; }
    /// The RDMA device of that name, or null.
    [[nodiscard]] const Nic* find_nic(std::string_view name) const noexcept;
    /// The PCI functions, ordered by address.
    [[nodiscard]] std::span<const PciFunction> pci_functions() const noexcept { return functions_; }
    /// The PCI function at that address, or null.
    [[nodiscard]] const PciFunction* find_pci_function(const PciAddress& address) const noexcept;
    /// The files that could not be read or parsed, with the reason: one sentence without a full
    /// stop for each.
    [[nodiscard]] std::span<const std::string> problems() const noexcept { return problems_; }

    /// Queries the data-direct function of an open device (mlx5dv_get_data_direct_sysfs_path(3),
    /// rdma-core 54, Linux 6.12) and sets it. sysfs alone does not show which function belongs to
    /// which NIC.
    /// @return no, with the reason, if the device has none
    Availability query_data_direct(const Context& context);
    /// Sets the data-direct function of a NIC.
    /// @param sysfs_path  the directory of the function, with or without "/sys"; only the last
    ///                    component, its PCI address, is used
    /// @return no, with the reason, for a NIC or a PCI function that is not in this topology
    Availability set_data_direct(std::string_view nic, std::string_view sysfs_path);

    /// The path between memory and a NIC. If the NIC has a data-direct function in the PCI domain
    /// of the memory, the nearer of its two paths; the NIC's own path if they are equally near.
    [[nodiscard]] Path path(const MemoryLocation& memory, const Nic& nic) const;

    /// All NICs, the best for that memory first. They are ordered by: an active port, path type,
    /// NUMA distance, hops, bandwidth. In this order unknown values come last.
    ///
    /// Several GPUs that have the same set of equal NICs would all start with the same NIC.
    /// Therefore the NICs of one rank are rotated by the index of the memory's device among all
    /// devices of the same vendor, device ID and class that have this set at the same distance.
    /// This index depends on PCI addresses only, so that all processes of a machine agree.
    [[nodiscard]] std::vector<RankedNic> nearest(const MemoryLocation& memory) const;

  private:
    struct NumaNode {
        int id = 0;
        /// Distances to the nodes, in the order of the nodes; empty if they are not known.
        std::vector<unsigned> distances = {};
    };

    Topology() = default;
    [[nodiscard]] Path path_to(const MemoryLocation& memory, const PciFunction& nic) const;
    [[nodiscard]] Path path_between(const PciFunction& memory, const PciFunction& nic) const;
    [[nodiscard]] Path path_by_numa(const std::optional<int>& memory, const PciFunction& nic,
                                    PathType same_node) const;
    [[nodiscard]] std::optional<double> slowest_link(const PciFunction& nic,
                                                     std::size_t common) const;
    [[nodiscard]] std::vector<RankedNic> ranked(const MemoryLocation& memory) const;

    std::vector<PciFunction> functions_;
    std::vector<Nic> nics_;
    std::vector<NumaNode> numa_nodes_;
    std::vector<std::string> problems_;

    friend class detail::TopologyReader;
};

} // namespace rdmabuf
