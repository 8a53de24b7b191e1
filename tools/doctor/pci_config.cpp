// SPDX-License-Identifier: BSD-3-Clause
//
// The offsets and numbers are those of linux/pci_regs.h.
#include "pci_config.hpp"

namespace rdmabuf::tools::doctor {

namespace {

constexpr std::size_t first_capability = 0x34;
constexpr std::size_t first_extended = 0x100;
constexpr unsigned express = 0x10;
constexpr std::uint16_t acs = 0x0d;
constexpr std::uint16_t ats = 0x0f;
/// The maximum number of capabilities in a list, so that a malformed list ends.
constexpr int most_capabilities = 96;

} // namespace

PciConfig::PciConfig(const Machine& machine, const std::string& pci)
    : bytes_(machine.read("/sys/bus/pci/devices/" + pci + "/config").text.value_or("")) {}

std::optional<std::uint16_t> PciConfig::word(std::size_t offset) const {
    if (offset + 2 > bytes_.size()) {
        return std::nullopt;
    }
    const auto low = static_cast<unsigned char>(bytes_[offset]);
    const auto high = static_cast<unsigned char>(bytes_[offset + 1]);
    return static_cast<std::uint16_t>(low | (high << 8U));
}

std::optional<std::size_t> PciConfig::extended(std::uint16_t id) const {
    std::size_t at = first_extended;
    for (int i = 0; i < most_capabilities && at >= first_extended; ++i) {
        const auto found = word(at);
        const auto next = word(at + 2);
        if (!found || !next || *found == 0xffff) {
            return std::nullopt;
        }
        if (*found == id) {
            return at;
        }
        at = *next >> 4U;
    }
    return std::nullopt;
}

std::optional<std::uint16_t> PciConfig::device_control() const {
    if (!complete()) {
        return std::nullopt;
    }
    std::size_t at = word(first_capability).value_or(0) & 0xfcU;
    for (int i = 0; i < most_capabilities && at >= 0x40; ++i) {
        const auto head = word(at);
        if (!head) {
            return std::nullopt;
        }
        if ((*head & 0xffU) == express) {
            return word(at + 8);
        }
        at = (*head >> 8U) & 0xfcU;
    }
    return std::nullopt;
}

std::optional<std::uint16_t> PciConfig::acs_control() const {
    const auto at = extended(acs);
    return at ? word(*at + 6) : std::nullopt;
}

std::optional<std::uint16_t> PciConfig::ats_control() const {
    const auto at = extended(ats);
    return at ? word(*at + 6) : std::nullopt;
}

} // namespace rdmabuf::tools::doctor
