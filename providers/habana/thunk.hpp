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

/// The functions of libhl-thunk.so.
struct ThunkFunctions {
    GetDeviceName* get_device_name = nullptr;
    GetPciBusId* get_pci_bus_id = nullptr;
    OpenControl* open_control = nullptr;
    Close* close = nullptr;
    ExportMemory* export_memory = nullptr;
    /// Null in libraries from before Gaudi 2.
    ExportMappedMemory* export_mapped_memory = nullptr;
};

/// libhl-thunk.so, the driver in user space.
class Thunk : public DriverBase<Thunk, ThunkFunctions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<ThunkFunctions> description();

    /// The kind of device behind an open descriptor, whose memory can be exported.
    [[nodiscard]] Result<DeviceName> device(int fd) const;
    /// "0000:3b:00.0"; empty when the driver does not tell.
    [[nodiscard]] std::string pci_address(int fd) const;
    /// Of all devices, without opening any for use.
    [[nodiscard]] std::vector<std::string> pci_addresses() const;

    /// The dma-buf of memory of @p device.
    /// @param fd  of that device
    /// @param at_least  so many bytes of the mapping are in it
    /// @throws Error as HabanaExporter::add
    [[nodiscard]] ExportedMemory export_memory(int fd, DeviceName device,
                                               const HabanaMemory& memory,
                                               std::size_t at_least = 0) const;

  private:
    [[nodiscard]] ExportedMemory export_dram(int fd, const HabanaMemory& memory) const;
    [[nodiscard]] ExportedMemory export_mapping(int fd, const HabanaMemory& memory,
                                                std::size_t at_least) const;
};

/// Gaudi 1 has no virtual memory, and a call of its own.
[[nodiscard]] constexpr bool is_gaudi1(DeviceName name) noexcept {
    return name == DeviceName::gaudi || name == DeviceName::gaudi_hl2000m;
}
[[nodiscard]] std::string describe(const HabanaMemory& memory);

} // namespace rdmabuf::detail::habana
