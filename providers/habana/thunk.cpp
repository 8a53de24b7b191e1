// SPDX-License-Identifier: BSD-3-Clause
#include "habana/thunk.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

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

constexpr const char* dram_call = "hlthunk_device_memory_export_dmabuf_fd";
constexpr const char* mapping_call = "hlthunk_device_mapped_memory_export_dmabuf_fd";
/// Some versions of libhl-thunk.so ignore the flags of an export, so take_descriptor() also sets
/// close-on-exec.
constexpr std::uint32_t export_flags = O_RDWR | O_CLOEXEC;

/// The number of control devices to try, beginning with device 0. Some of these devices do not
/// exist, because devices of other drivers share the numbering.
constexpr int most_devices = 64;

ThunkFunctions look_up_thunk(SymbolLookup& lookup) {
    ThunkFunctions all;
    constexpr const char* old = "2019";
    lookup.required("hlthunk_get_device_name_from_fd", all.get_device_name, old);
    lookup.required("hlthunk_get_pci_bus_id_from_fd", all.get_pci_bus_id, old);
    lookup.required("hlthunk_open_control", all.open_control, old);
    lookup.required("hlthunk_close", all.close, old);
    lookup.required(dram_call, all.export_memory, "2021");
    lookup.optional(mapping_call, all.export_mapped_memory);
    return all;
}

/// Describes the whole pages that contain the memory: the start address of the pages, and their
/// size in bytes.
struct Pages {
    std::uint64_t start;
    std::size_t size;
};

[[noreturn]] void raise(int error, const char* call, const Pages& pages, const HabanaMemory& memory,
                        std::string_view remedy) {
    std::string hint = std::to_string(pages.size) + " bytes at " + hexadecimal(pages.start) +
                       " were requested for the " + describe(memory);
    if (error == EINVAL) {
        hint.append("; ").append(remedy);
    } else if (error == EBUSY) {
        hint += "; the device is being reset, or has failed: see dmesg";
    } else if (error == ENOTTY || error == EBADF) {
        hint += "; the descriptor must be that of the open device, from hlthunk_open()";
    }
    throw Error(error, call, hint);
}

} // namespace

DriverDescription<ThunkFunctions> Thunk::description() {
    return {thunk_names, "Habana driver", thunk_remedy, version_remedy, look_up_thunk};
}

Result<DeviceName> Thunk::device(int fd) const {
    constexpr const char* call = "hlthunk_get_device_name_from_fd";
    const std::string which = "descriptor " + std::to_string(fd);
    if (::fcntl(fd, F_GETFD) < 0) {
        return ErrorInfo{EBADF, call, which + " is not open",
                         "keep the device open while the exporter exists"};
    }
    const DeviceName name = functions().get_device_name(fd);
    if (name == DeviceName::invalid || name == DeviceName::goya) {
        return ErrorInfo{ENODEV, call, which + " is not that of a Gaudi",
                         "pass the descriptor of the open device: the result of hlthunk_open(), or "
                         "synDeviceInfoV2::fd"};
    }
    if (!is_gaudi1(name) && functions().export_mapped_memory == nullptr) {
        return ErrorInfo{ENOSYS, "dlsym",
                         library() + " is too old for this device: it does not have " +
                             mapping_call + " (available since Gaudi 2)",
                         version_remedy};
    }
    return name;
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

ExportedMemory Thunk::export_memory(int fd, DeviceName device, const HabanaMemory& memory,
                                    std::size_t at_least) const {
    const bool gaudi1 = is_gaudi1(device);
    ExportedMemory exported =
        gaudi1 ? export_dram(fd, memory) : export_mapping(fd, memory, at_least);
    check_holds(exported, memory.length, gaudi1 ? dram_call : mapping_call, describe(memory));
    return exported;
}

ExportedMemory Thunk::export_dram(int fd, const HabanaMemory& memory) const {
    const std::uint64_t offset = memory.address % page_size();
    const Pages pages{.start = memory.address - offset,
                      .size = round_up_to_pages(offset + memory.length)};
    const int got = functions().export_memory(fd, pages.start, pages.size, export_flags);
    if (got < 0) {
        raise(-got, dram_call, pages, memory,
              "on Gaudi 1, the address must be in the DRAM of the device, within the PCI BAR");
    }
    return {.fd = take_descriptor(got, dram_call), .offset = offset};
}

ExportedMemory Thunk::export_mapping(int fd, const HabanaMemory& memory,
                                     std::size_t at_least) const {
    const std::uint64_t start = memory.mapping != 0 ? memory.mapping : memory.address;
    // The export begins at the start of the mapping, because kernels before 6.7 ignore the offset
    // that an export requests.
    const std::uint64_t offset = memory.address - start;
    const Pages pages{.start = start,
                      .size = round_up_to_pages(std::max(offset + memory.length, at_least))};
    const int got = functions().export_mapped_memory(fd, pages.start, pages.size, 0, export_flags);
    if (got < 0) {
        raise(-got, mapping_call, pages, memory,
              "the mapping must be the result of hlthunk_device_memory_map(), or "
              "synDeviceInfoV2::globalHbmBaseAddress, and must not end before the memory");
    }
    return {.fd = take_descriptor(got, mapping_call), .offset = offset};
}

std::string describe(const HabanaMemory& memory) {
    std::string text = std::to_string(memory.length) + " bytes at " + hexadecimal(memory.address);
    if (memory.mapping != 0) {
        text += ", mapping " + hexadecimal(memory.mapping);
    }
    return text;
}

} // namespace rdmabuf::detail::habana
