// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf {

/// The address of a PCI function in the machine.
struct RDMABUF_EXPORT PciAddress {
    /// The number of the PCI domain. Domains that the firmware assigns have 16 bits. Some drivers
    /// add domains above 0xffff: with Intel VMD, an address can be "10000:e1:00.0".
    std::uint32_t domain = 0;
    std::uint8_t bus = 0;
    /// 0 to 31.
    std::uint8_t device = 0;
    /// 0 to 7.
    std::uint8_t function = 0;

    /// Parses an address such as "0000:3b:00.0". The text must contain a domain of 4 to 8
    /// hexadecimal digits, bus, device and function; the digits can be in upper or lower case.
    /// Returns nullopt for any other text, also for an address without a domain.
    [[nodiscard]] static std::optional<PciAddress> parse(std::string_view text) noexcept;

    friend auto operator<=>(const PciAddress&, const PciAddress&) noexcept = default;
};

/// Returns the address in the format of sysfs: in lower case, with a domain of at least 4 digits.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const PciAddress& address);

/// The speed and width of a PCIe link.
struct RDMABUF_EXPORT PciLink {
    /// The transfer rate of each lane in gigatransfers per second (GT/s), for example 16 for PCIe
    /// 4.0.
    double transfer_rate = 0;
    /// The number of lanes.
    unsigned width = 0;

    /// Returns the bandwidth of the link in one direction in Gbit/s, without the overhead of the
    /// encoding. The encoding is 8b/10b up to 5 GT/s and 128b/130b up to 32 GT/s. Above 32 GT/s,
    /// each FLIT of 256 bytes contains 236 bytes of TLPs. The headers of TLPs are not subtracted.
    [[nodiscard]] double bandwidth() const noexcept;

    friend bool operator==(const PciLink&, const PciLink&) noexcept = default;
};

/// The vendor ID, device ID and class code of a PCI function. The class code has 24 bits, for
/// example 0x030200 for a GPU without display.
struct PciIdentity {
    std::uint32_t vendor = 0;
    std::uint32_t device = 0;
    std::uint32_t class_code = 0;

    friend bool operator==(const PciIdentity&, const PciIdentity&) noexcept = default;
};

/// A PCI function and its position in the machine, as sysfs describes it (/sys/bus/pci/devices).
struct PciFunction {
    PciAddress address;
    /// The names of the function's parent directories below /sys/devices, from the top: the host
    /// bridge ("pci0000:3a"), the root port ("0000:3a:00.0"), and the ports of PCIe switches.
    std::vector<std::string> ancestors = {};
    /// The NUMA node of the host bridge. Empty if the sysfs attribute numa_node of the function is
    /// missing, malformed or -1 (the firmware assigns no node).
    std::optional<int> numa_node = std::nullopt;
    /// The maximum speed and width of the function's PCIe link: the lower values of the two ends of
    /// the link. The current speed is not used, because power management lowers the speed of an
    /// idle device. For a root port or the downstream port of a switch, this member has the limits
    /// of the port itself for the link below the port. Empty if sysfs does not report a link, for
    /// example if the function is not on PCIe.
    std::optional<PciLink> link = std::nullopt;
    /// The IDs and the class code. Empty if sysfs does not report all three numbers.
    std::optional<PciIdentity> identity = std::nullopt;
};

struct Allocation; // in exporter.hpp

namespace detail {
class TopologyReader;
} // namespace detail

/// The type of the path between memory and a NIC. The values are ordered from near to far. Most
/// names are those of NCCL (src/include/graph.h) or of `nvidia-smi topo -m`.
enum class PathType : std::uint8_t {
    /// The memory is on the NIC itself.
    loc,
    /// The path goes through at most one PCIe switch, and through no host bridge.
    pix,
    /// The path goes through several PCIe switches, but through no host bridge.
    pxb,
    /// The GPU is connected to the CPU by a coherent chip-to-chip link (NVLink-C2C), and the NIC is
    /// connected to the same CPU by PCIe. NCCL calls this path P2C.
    c2c,
    /// The path goes through one PCIe host bridge. This is also the path to host memory of the
    /// NIC's NUMA node.
    phb,
    /// The path goes through two host bridges of one NUMA node.
    node,
    /// The path goes through the interconnect between NUMA nodes.
    sys,
    /// The type of the path is unknown: sysfs does not describe the path, or the location of the
    /// memory is not known. Path::reason has the details.
    unknown,
};

/// Returns the name in capital letters, such as "PIX"; "unknown" for PathType::unknown.
[[nodiscard]] RDMABUF_EXPORT const char* to_string(PathType type) noexcept;

/// The path between memory and a NIC, as Topology::path() returns it.
struct Path {
    PathType type = PathType::unknown;
    /// The number of PCI bridges on the path, as sysfs shows them: root ports, and the ports of
    /// PCIe switches. The upstream port of the switch that connects both devices is included.
    unsigned hops = 0;
    /// The distance between the NUMA nodes of the memory and the NIC, as the firmware reports it
    /// (PathType::sys only). A node has the distance 10 to itself. Empty if the kernel does not
    /// report the distance.
    std::optional<unsigned> numa_distance = std::nullopt;
    /// True if this is the path to the data-direct function of the NIC. To use this path, register
    /// the memory with RegistrationPath::dmabuf_data_direct.
    bool data_direct = false;
    /// The bandwidth in Gbit/s: the lower of two values. One is the bandwidth of the slowest PCIe
    /// link between the NIC and the nearest common ancestor of NIC and memory. The other is the
    /// speed of the NIC's fastest active port. If only one value is known, that value; empty if
    /// neither is known.
    std::optional<double> bandwidth = std::nullopt;
    /// The reason why the type is unknown, as a sentence without a full stop. Empty if the type is
    /// known.
    std::string reason = {};
};

/// An RDMA device and its position in the machine, as sysfs describes them.
struct Nic {
    /// The name of the device in /sys/class/infiniband, such as "mlx5_0".
    std::string name;
    /// The PCI function of the device; for a subfunction, the PCI function to which it belongs.
    /// Empty for a device that is not a PCI function (Soft-RoCE), or if sysfs does not describe the
    /// function: see `reason`.
    std::optional<PciFunction> pci = std::nullopt;
    /// The PCI function that accesses GPU memory for the NIC (mlx5 data direct, ConnectX-8). Empty
    /// unless Topology::query_data_direct() or set_data_direct() has set this member.
    std::optional<PciFunction> data_direct = std::nullopt;
    /// True if at least one port is active. Empty if sysfs does not report the state of any port.
    std::optional<bool> active = std::nullopt;
    /// The rate of the fastest active port in Gbit/s. Empty if no port is active, or if the rate is
    /// not known.
    std::optional<double> port_speed = std::nullopt;
    /// The reason why `pci` is empty. Empty if `pci` is set.
    std::string reason = {};
};

/// The location of memory: the device that holds it, or the NUMA node of host memory.
/// locate_memory() returns the location of an address.
struct MemoryLocation {
    /// The PCI address of the device that holds the memory. Empty for host memory.
    std::optional<PciAddress> device = std::nullopt;
    /// The NUMA node of host memory. Not used if `device` is set.
    std::optional<int> numa_node = std::nullopt;
    /// True if a coherent chip-to-chip link connects the device to its CPU. The device's driver
    /// reports this (Allocation::c2c), not sysfs.
    bool c2c = false;
    /// The reason why locate_memory() could set neither `device` nor `numa_node`. Empty if one of
    /// them is set.
    std::string reason = {};
};

/// Returns the location of the byte at @p address, for Topology::nearest(). For device memory, the
/// location is the PCI address that the exporter reports. For other memory, the location is the
/// NUMA node of the page: see locate_host_memory().
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_memory(const Allocation& allocation,
                                                          std::uintptr_t address);
/// This overload returns the location of the first byte of @p allocation.
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_memory(const Allocation& allocation);

/// Returns the NUMA node of the host page that contains @p address. The node is unknown if the page
/// is not allocated yet, if the memory is not host memory, or if a container forbids move_pages(2)
/// (no CAP_SYS_NICE). MemoryLocation::reason then contains the cause.
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_host_memory(std::uintptr_t address);

/// A NIC in the list that Topology::nearest() returns.
struct RankedNic {
    std::string name;
    Path path;
    /// 0 for the best NICs: see Topology::nearest(). NICs that are equally near and equally fast
    /// have the same rank.
    unsigned rank = 0;
    /// False if it is known that all ports of the NIC are inactive. Such NICs are last in the list.
    bool usable = true;
};

/// The PCI functions, NUMA nodes and NICs of a machine, and the distances between them. The object
/// is a snapshot of sysfs: it does not contain later changes of the machine, such as a port that
/// becomes active.
class RDMABUF_EXPORT Topology {
  public:
    /// Reads the sysfs files in the directory @p root/sys. A test can pass a directory with a copy
    /// of /sys. Missing or malformed files cause no exception: their values are empty, and
    /// problems() lists the malformed files. About eight small files are read for each PCI
    /// function.
    [[nodiscard]] static Topology read(const std::filesystem::path& root = "/");

    // The spans and pointers that the functions below return are valid until this object is
    // assigned or destroyed. So the functions cannot be called on a temporary object.

    /// Returns the RDMA devices, ordered by PCI address and name.
    [[nodiscard]] std::span<const Nic> nics() const& noexcept { return nics_; }
    void nics() const&& = delete;
    /// Returns the RDMA device with the name @p name; nullptr if the topology does not contain this
    /// device.
    [[nodiscard]] const Nic* find_nic(std::string_view name) const& noexcept;
    void find_nic(std::string_view name) const&& = delete;
    /// Returns the PCI functions, ordered by address.
    [[nodiscard]] std::span<const PciFunction> pci_functions() const& noexcept {
        return functions_;
    }
    void pci_functions() const&& = delete;
    /// Returns the PCI function with the address @p address; nullptr if the topology does not
    /// contain this function.
    [[nodiscard]] const PciFunction* find_pci_function(const PciAddress& address) const& noexcept;
    void find_pci_function(const PciAddress& address) const&& = delete;
    /// Returns one sentence (without a full stop) for each malformed file, for each invalid entry
    /// in /sys/bus/pci/devices, and if sys/devices, sys/bus/pci/devices or sys/class/infiniband
    /// cannot be read. The sentence contains the name of the file and the reason.
    [[nodiscard]] std::span<const std::string> problems() const& noexcept { return problems_; }
    void problems() const&& = delete;

    /// Queries the data-direct function (a PCI function) of an open device, and sets
    /// Nic::data_direct of the NIC. The query is needed because sysfs does not show which
    /// data-direct function belongs to a NIC. It uses mlx5dv_get_data_direct_sysfs_path(3), which
    /// needs rdma-core 54 and Linux 6.12.
    /// @return not available, with the reason, if the device has no data-direct function, if
    ///         libmlx5 or the kernel cannot report it, if @p context was closed, or in the cases of
    ///         set_data_direct()
    Availability query_data_direct(const Context& context);
    /// Sets the data-direct function of the NIC with the name @p nic.
    /// @param sysfs_path  the directory of the PCI function, with or without "/sys". Only the last
    ///                    component, which is the PCI address, is used.
    /// @return not available, with the reason, if this topology does not contain the NIC or the PCI
    ///         function, or if @p sysfs_path does not end with a PCI address
    Availability set_data_direct(std::string_view nic, std::string_view sysfs_path);

    /// Returns the path between memory and a NIC. A NIC that has a data-direct function in the PCI
    /// domain of the memory has two paths. In this case, the result is the path with the nearer
    /// PathType; for the same PathType, the path with fewer hops; for the same number of hops, the
    /// path of the NIC itself.
    [[nodiscard]] Path path(const MemoryLocation& memory, const Nic& nic) const;

    /// Returns all NICs, the best NIC for this memory first. They are ordered by: an active port,
    /// path type, NUMA distance, hops, bandwidth. Unknown types, distances and bandwidths are last;
    /// a NIC whose port state is unknown counts as active.
    ///
    /// If several GPUs have the same set of equal NICs, all GPUs would use the same first NIC.
    /// Therefore the NICs of one rank are rotated by the index of the memory's device: its
    /// position, by PCI address, among the devices of the same vendor, device ID and class that
    /// have the same set of NICs with the same PathType. So all processes of a machine compute the
    /// same index.
    [[nodiscard]] std::vector<RankedNic> nearest(const MemoryLocation& memory) const;

  private:
    struct NumaNode {
        int id = 0;
        /// Element i is the distance from this node to numa_nodes_[i]. Empty if the distances are
        /// not known.
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
