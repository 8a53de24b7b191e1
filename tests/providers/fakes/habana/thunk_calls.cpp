// SPDX-License-Identifier: BSD-3-Clause
// The functions of libhl-thunk.so that rdmabuf calls.
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "machine.hpp"

namespace abi = fake_habana::abi;
using fake_habana::Call;

// The definitions below have the types that rdmabuf calls them by, or they do not compile.
extern "C" {
extern abi::GetDeviceName hlthunk_get_device_name_from_fd;
extern abi::GetPciBusId hlthunk_get_pci_bus_id_from_fd;
extern abi::OpenControl hlthunk_open_control;
extern abi::Close hlthunk_close;
extern abi::ExportMemory hlthunk_device_memory_export_dmabuf_fd;
extern abi::ExportMappedMemory hlthunk_device_mapped_memory_export_dmabuf_fd;
}

namespace {

/// What of the arguments is refused whichever call it is.
int check(const Call& call, int fd, std::uint64_t address, std::uint64_t size) {
    if (call.refused() != 0) {
        return call.refused();
    }
    if (!call->open.contains(fd)) {
        return -ENOTTY;
    }
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return address % page != 0 || size % page != 0 || size == 0 ? -EINVAL : 0;
}

bool is_gaudi1(abi::DeviceName name) {
    return name == abi::DeviceName::gaudi || name == abi::DeviceName::gaudi_hl2000m;
}

} // namespace

abi::DeviceName hlthunk_get_device_name_from_fd(int fd) {
    const Call call("hlthunk_get_device_name_from_fd");
    const auto found = call->open.find(fd);
    return found != call->open.end() ? found->second : abi::DeviceName::invalid;
}

int hlthunk_get_pci_bus_id_from_fd(int fd, char* text, int length) {
    const Call call("hlthunk_get_pci_bus_id_from_fd");
    if (call.refused() != 0 || !call->open.contains(fd)) {
        return call.refused() != 0 ? call.refused() : -ENODEV;
    }
    std::snprintf(text, static_cast<std::size_t>(length), "0000:33:00.0");
    return 0;
}

int hlthunk_open_control(int index, const char* /*pci_bus_id*/) {
    const Call call("hlthunk_open_control");
    if (call.refused() != 0 || static_cast<unsigned>(index) >= call->devices) {
        return -1;
    }
    return call->open_device(abi::DeviceName::gaudi2);
}

int hlthunk_close(int fd) {
    const Call call("hlthunk_close");
    call->close_device(fd);
    return 0;
}

int hlthunk_device_memory_export_dmabuf_fd(int fd, std::uint64_t address, std::uint64_t size,
                                           std::uint32_t /*flags*/) {
    const Call call("hlthunk_device_memory_export_dmabuf_fd");
    if (const int refused = check(call, fd, address, size); refused != 0) {
        return refused;
    }
    // The allocations in its DRAM are nothing to the driver of a Gaudi 1; here they are mappings,
    // and exported from their begin on.
    const auto found = call->mappings.find(address);
    if (!is_gaudi1(call->open.at(fd)) || found == call->mappings.end() || size > found->second) {
        return -EINVAL;
    }
    return call->share(address, size);
}

int hlthunk_device_mapped_memory_export_dmabuf_fd(int fd, std::uint64_t mapping, std::uint64_t size,
                                                  std::uint64_t offset, std::uint32_t /*flags*/) {
    const Call call("hlthunk_device_mapped_memory_export_dmabuf_fd");
    if (const int refused = check(call, fd, mapping, size); refused != 0) {
        return refused;
    }
    const auto found = call->mappings.find(mapping);
    if (is_gaudi1(call->open.at(fd)) || offset != 0 || found == call->mappings.end() ||
        size > found->second) {
        return -EINVAL;
    }
    return call->share(mapping, size);
}
