// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/habana.hpp>

#include "common/exported_memory.hpp"
#include "common/process_driver.hpp"
#include "habana/habana_abi.hpp"

namespace rdmabuf::detail::habana {

struct ThunkFunctions {
    GetDeviceName* get_device_name = nullptr;
    GetPciBusId* get_pci_bus_id = nullptr;
    OpenControl* open_control = nullptr;
    Close* close = nullptr;
    ExportMappedMemory* export_mapped_memory = nullptr;
};

/// Calls libhl-thunk.so, the user-space driver of Gaudi 2 and newer devices.
class Thunk : public DriverBase<Thunk, ThunkFunctions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<ThunkFunctions> description();

    /// Returns an error if the device behind a descriptor cannot be used: EBADF if the descriptor
    /// is not open, ENODEV if the device is not a Gaudi 2 or newer.
    [[nodiscard]] std::optional<ErrorInfo> check_device(int fd) const;
    /// Returns the PCI address of a device, for example "0000:3b:00.0", or an empty string if the
    /// driver does not report the address.
    [[nodiscard]] std::string pci_address(int fd) const;
    /// Returns the PCI addresses of the devices whose control nodes this process can open. Opens no
    /// other nodes, so that no device is acquired.
    [[nodiscard]] std::vector<std::string> pci_addresses() const;

    /// Exports memory of a device as a dma-buf.
    /// @param fd  descriptor of the device
    /// @throws Error with the errors of HabanaExporter::add()
    [[nodiscard]] ExportedMemory export_memory(int fd, const HabanaMemory& memory) const;
};

[[nodiscard]] std::string describe(const HabanaMemory& memory);

} // namespace rdmabuf::detail::habana
