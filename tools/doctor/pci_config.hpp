// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "machine.hpp"

namespace rdmabuf::tools::doctor {

/// The configuration space of a PCI function. Only root can read more than its first 64 bytes.
class PciConfig {
  public:
    /// Reads the file "config" of the function. @param pci  "0000:3b:00.0"
    PciConfig(const Machine& machine, const std::string& pci);

    /// Returns true if the capabilities of the function could be read.
    [[nodiscard]] bool complete() const noexcept { return bytes_.size() > 64; }
    /// Returns false if the vendor ID reads as 0xffff: the function does not answer.
    [[nodiscard]] bool answers() const { return word(0) != 0xffff; }

    /// The register Device Control of the PCI Express capability. Empty if the function has no such
    /// capability, or if it could not be read.
    [[nodiscard]] std::optional<std::uint16_t> device_control() const;
    /// The register ACS Control. Empty if the function has no Access Control Services, or if they
    /// could not be read.
    [[nodiscard]] std::optional<std::uint16_t> acs_control() const;
    /// The register ATS Control. Empty if the function has no Address Translation Services, or if
    /// they could not be read.
    [[nodiscard]] std::optional<std::uint16_t> ats_control() const;

  private:
    [[nodiscard]] std::optional<std::uint16_t> word(std::size_t offset) const;
    /// Returns the offset of the extended capability @p id in the configuration space, in bytes.
    /// Returns nullopt if the function does not have the capability, or if it could not be read.
    [[nodiscard]] std::optional<std::size_t> extended(std::uint16_t id) const;

    std::string bytes_;
};

} // namespace rdmabuf::tools::doctor
