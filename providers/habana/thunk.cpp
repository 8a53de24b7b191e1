// SPDX-License-Identifier: BSD-3-Clause
#include "habana/thunk.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>

#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/driver_library.hpp"

namespace rdmabuf::detail::habana {
namespace {

constexpr std::array thunk_names{"libhl-thunk.so", "/usr/lib/habanalabs/libhl-thunk.so"};
constexpr const char* thunk_remedy =
    "install habanalabs-thunk of the Gaudi software, and make sure that the loader finds it (in "
    "/usr/lib/habanalabs)";
constexpr const char* version_remedy = "update habanalabs-thunk";

constexpr const char* mapping_call = "hlthunk_device_mapped_memory_export_dmabuf_fd";
/// Some versions of libhl-thunk.so ignore the flags of an export, so take_descriptor() also sets
/// close-on-exec.
constexpr std::uint32_t export_flags = O_RDWR | O_CLOEXEC;

/// The number of control device indices to try, from 0 on. Some indices have no device of this
/// driver, because devices of other drivers share the numbering.
constexpr int most_devices = 64;

ThunkFunctions look_up_thunk(SymbolLookup& lookup) {
    ThunkFunctions all;
    constexpr const char* old = "2019";
    lookup.required("hlthunk_get_device_name_from_fd", all.get_device_name, old);
    lookup.required("hlthunk_get_pci_bus_id_from_fd", all.get_pci_bus_id, old);
    lookup.required("hlthunk_open_control", all.open_control, old);
    lookup.required("hlthunk_close", all.close, old);
    lookup.required(mapping_call, all.export_mapped_memory, "Gaudi 2");
    return all;
}

} // namespace

DriverDescription<ThunkFunctions> Thunk::description() {
    return {thunk_names, "Habana driver", thunk_remedy, version_remedy, look_up_thunk};
}

std::optional<ErrorInfo> Thunk::check_device(int fd) const {
    constexpr const char* call = "hlthunk_get_device_name_from_fd";
    const std::string which = "descriptor " + std::to_string(fd);
    if (::fcntl(fd, F_GETFD) < 0) {
        return ErrorInfo{EBADF, call, which + " is not open",
                         "keep the device open while the exporter exists"};
    }
    switch (functions().get_device_name(fd)) {
        case DeviceName::invalid:
        case DeviceName::goya:
        case DeviceName::gaudi:
        case DeviceName::gaudi_hl2000m:
            return ErrorInfo{ENODEV, call, which + " is not that of a Gaudi 2 or newer",
                             "pass the descriptor of the open device: the result of "
                             "hlthunk_open(), or synDeviceInfoV2::fd"};
        default:
            return std::nullopt;
    }
}

std::string Thunk::pci_address(int fd) const {
    std::array<char, 32> text{};
    return functions().get_pci_bus_id(fd, text.data(), static_cast<int>(text.size())) == 0
               ? std::string(text.data())
               : std::string();
}

std::vector<std::string> Thunk::pci_addresses() const {
    std::vector<std::string> addresses;
    for (int index = 0; index < most_devices; ++index) {
        const int control = functions().open_control(index, nullptr);
        if (control >= 0) {
            addresses.push_back(pci_address(control));
            functions().close(control);
        }
    }
    return addresses;
}

ExportedMemory Thunk::export_memory(int fd, const HabanaMemory& memory) const {
    const std::uint64_t start = memory.mapping != 0 ? memory.mapping : memory.address;
    // The export begins at the start of the mapping, because kernels before 6.7 ignore the offset
    // that an export requests.
    const std::uint64_t offset = memory.address - start;
    const std::size_t size = round_up_to_pages(offset + memory.length);
    const int got = functions().export_mapped_memory(fd, start, size, 0, export_flags);
    if (got < 0) {
        const int error = -got;
        std::string hint = std::to_string(size) + " bytes at " + hexadecimal(start) +
                           " were requested for the " + describe(memory);
        if (error == EINVAL) {
            hint +=
                "; the mapping must be the result of hlthunk_device_memory_map(), or "
                "synDeviceInfoV2::globalHbmBaseAddress, and must not end before the memory";
        } else if (error == EBUSY) {
            hint += "; the device is being reset, or has failed: see dmesg";
        } else if (error == ENOTTY || error == EBADF) {
            hint += "; the descriptor must be that of the open device, from hlthunk_open()";
        }
        throw Error(error, mapping_call, hint);
    }
    ExportedMemory exported{.fd = take_descriptor(got, mapping_call), .offset = offset};
    check_holds(exported, memory.length, mapping_call, describe(memory));
    return exported;
}

std::string describe(const HabanaMemory& memory) {
    std::string text = std::to_string(memory.length) + " bytes at " + hexadecimal(memory.address);
    if (memory.mapping != 0) {
        text += ", mapping " + hexadecimal(memory.mapping);
    }
    return text;
}

} // namespace rdmabuf::detail::habana
