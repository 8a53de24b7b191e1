// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rdmabuf/providers/habana.hpp>
#include <rdmabuf/result.hpp>

#include "common/exported_memory.hpp"
#include "common/process_driver.hpp"
#include "habana/habana_abi.hpp"

namespace rdmabuf::detail::habana {

/// Holds pointers to the functions of libhl-thunk.so.
struct ThunkFunctions {
    GetDeviceName* get_device_name = nullptr;
    GetPciBusId* get_pci_bus_id = nullptr;
    OpenControl* open_control = nullptr;
    Close* close = nullptr;
    ExportMemory* export_memory = nullptr;
    /// The function that exports memory of Gaudi 2; null if the library does not support Gaudi 2.
    ExportMappedMemory* export_mapped_memory = nullptr;
};

/// Calls libhl-thunk.so, the user-space driver of Gaudi.
class Thunk : public DriverBase<Thunk, ThunkFunctions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<ThunkFunctions> description();

    /// Returns the model of the device behind a descriptor.
    /// @return EBADF if the descriptor is not open, ENODEV if the device is not a Gaudi, ENOSYS if
    ///         the library cannot export memory of this model
    [[nodiscard]] Result<DeviceName> device(int fd) const;
    /// Returns the PCI address of a device, for example "0000:3b:00.0", or an empty string if the
    /// driver does not report the address.
    [[nodiscard]] std::string pci_address(int fd) const;
    /// Returns the PCI addresses of all devices. Opens only the control nodes of the devices, so
    /// that no device is acquired.
    [[nodiscard]] std::vector<std::string> pci_addresses() const;

    /// Exports memory of a device as a dma-buf.
    /// @param fd        descriptor of the device
    /// @param device    model of the device
    /// @param at_least  minimum size of the export in bytes, counted from the start of the mapping;
    ///                  ignored on Gaudi 1
    /// @throws Error with the errors of HabanaExporter::add()
    [[nodiscard]] ExportedMemory export_memory(int fd, DeviceName device,
                                               const HabanaMemory& memory,
                                               std::size_t at_least = 0) const;

  private:
    [[nodiscard]] ExportedMemory export_dram(int fd, const HabanaMemory& memory) const;
    [[nodiscard]] ExportedMemory export_mapping(int fd, const HabanaMemory& memory,
                                                std::size_t at_least) const;
};

/// Returns true for Gaudi 1, which has no virtual memory and therefore a separate function for
/// exports.
[[nodiscard]] constexpr bool is_gaudi1(DeviceName name) noexcept {
    return name == DeviceName::gaudi || name == DeviceName::gaudi_hl2000m;
}
[[nodiscard]] std::string describe(const HabanaMemory& memory);

} // namespace rdmabuf::detail::habana
