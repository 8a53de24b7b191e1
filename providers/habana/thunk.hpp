// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/providers/habana.hpp>
#include <rdmabuf/result.hpp>

#include "common/exported_memory.hpp"
#include "habana/habana_abi.hpp"

namespace rdmabuf::detail::habana {

/// libhl-thunk.so, the driver in user space.
class Thunk {
  public:
    struct Functions {
        GetDeviceName* get_device_name = nullptr;
        GetPciBusId* get_pci_bus_id = nullptr;
        OpenControl* open_control = nullptr;
        Close* close = nullptr;
        ExportMemory* export_memory = nullptr;
        /// Null in libraries from before Gaudi 2.
        ExportMappedMemory* export_mapped_memory = nullptr;
    };

    /// What load() found.
    Thunk(std::string library, const Functions& functions)
        : library_(std::move(library)), functions_(functions) {}

    /// That of this process: loaded at the first call, or refused for good.
    [[nodiscard]] static const Result<Thunk>& of_process();
    /// @param names  where to look for it, in order
    [[nodiscard]] static Result<Thunk> load(std::span<const char* const> names);

    [[nodiscard]] const Functions& functions() const noexcept { return functions_; }
    /// What was loaded, "libhl-thunk.so".
    [[nodiscard]] const std::string& library() const noexcept { return library_; }

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

    std::string library_;
    Functions functions_;
};

/// Gaudi 1 has no virtual memory, and a call of its own.
[[nodiscard]] constexpr bool is_gaudi1(DeviceName name) noexcept {
    return name == DeviceName::gaudi || name == DeviceName::gaudi_hl2000m;
}
[[nodiscard]] std::string describe(const HabanaMemory& memory);

} // namespace rdmabuf::detail::habana
