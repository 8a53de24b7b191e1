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

} // namespace rdmabuf
