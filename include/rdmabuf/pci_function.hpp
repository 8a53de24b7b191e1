// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// The address of a PCI function.
struct RDMABUF_EXPORT PciAddress {
    /// 16 bits, or more if a driver adds domains (Intel VMD: "10000:e1:00.0").
    std::uint32_t domain = 0;
    std::uint8_t bus = 0;
    /// 0 to 31.
    std::uint8_t device = 0;
    /// 0 to 7.
    std::uint8_t function = 0;

    /// Parses "0000:3b:00.0": a domain of 4 to 8 hexadecimal digits, bus, device and function, in
    /// upper or lower case. Returns nullopt for any other text, also for one without a domain.
    [[nodiscard]] static std::optional<PciAddress> parse(std::string_view text) noexcept;

    friend auto operator<=>(const PciAddress&, const PciAddress&) noexcept = default;
};

/// The address as sysfs writes it: lower case, a domain of at least 4 digits.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const PciAddress& address);

/// The speed and width of a PCIe link.
struct RDMABUF_EXPORT PciLink {
    /// In gigatransfers per second and lane (GT/s): 16 for PCIe 4.0.
    double transfer_rate = 0;
    /// Number of lanes.
    unsigned width = 0;

    /// In Gbit/s, in one direction: the transfer rate times the width, less the line encoding of
    /// that rate (8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, FLITs of 256 bytes with 236 bytes
    /// of TLPs above). Packet headers are not subtracted.
    [[nodiscard]] double bandwidth() const noexcept;

    friend bool operator==(const PciLink&, const PciLink&) noexcept = default;
};

/// The vendor and device ID of a PCI function, and its class code of 24 bits: 0x030200 for a GPU
/// without display.
struct PciIdentity {
    std::uint32_t vendor = 0;
    std::uint32_t device = 0;
    std::uint32_t class_code = 0;

    friend bool operator==(const PciIdentity&, const PciIdentity&) noexcept = default;
};

/// A PCI function and its position in the machine, as /sys/bus/pci/devices describes it.
struct PciFunction {
    PciAddress address;
    /// The components of the function's real path below /sys/devices, without the function itself:
    /// the host bridge "pci0000:3a", the root port "0000:3a:00.0", then the ports of switches.
    std::vector<std::string> ancestors = {};
    /// The NUMA node of the host bridge. Empty if the kernel does not know it (numa_node is -1), or
    /// if the attribute is missing or malformed.
    std::optional<int> numa_node = std::nullopt;
    /// The link of the function: the lower maximum speed and the lower maximum width of its two
    /// ends. The current speed is not used, because power management lowers it on an idle device.
    /// For a root port and a downstream port of a switch, the port's own limits for the link below.
    /// Empty if sysfs does not report it, as for functions that are not on PCIe.
    std::optional<PciLink> link = std::nullopt;
    /// Empty if sysfs does not report all of it.
    std::optional<PciIdentity> identity = std::nullopt;
};

} // namespace rdmabuf
