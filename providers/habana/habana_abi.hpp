// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// Declares the parts of Habana's two libraries that rdmabuf uses, so that the build needs neither
/// library. The values are those of <hlthunk.h>, <synapse_api.h> and <synapse_common_types.h>.
/// Where these headers are installed, tests/build/abi/habana.cpp checks that the values agree.
namespace rdmabuf::detail::habana {

/// hlthunk_device_name
enum class DeviceName : int { goya = 0, gaudi = 2, invalid = 3, gaudi2 = 5, gaudi_hl2000m = 6 };

using GetDeviceName = DeviceName(int fd);
using GetPciBusId = int(int fd, char* text, int length);
using OpenControl = int(int index, const char* pci_bus_id);
using Close = int(int fd);
/// The function returns a descriptor, or the negated errno value.
using ExportMemory = int(int fd, std::uint64_t address, std::uint64_t size, std::uint32_t flags);
using ExportMappedMemory = int(int fd, std::uint64_t mapping, std::uint64_t size,
                               std::uint64_t offset, std::uint32_t flags);

using Status = int; // synStatus
inline constexpr Status success = 0;
inline constexpr Status invalid_argument = 1;
inline constexpr Status out_of_host_memory = 3;
inline constexpr Status out_of_device_memory = 4;
inline constexpr Status object_already_initialized = 5;
inline constexpr Status no_device_found = 8;
inline constexpr Status failed_to_allocate_device_memory = 14;
inline constexpr Status not_enough_devices_found = 16;
inline constexpr Status device_reset = 17;
inline constexpr Status unsupported = 18;
inline constexpr Status device_already_acquired = 20;
inline constexpr Status busy = 22;
inline constexpr Status failed = 26;
inline constexpr Status uninitialized = 28;
inline constexpr Status already_initialized = 29;

using DeviceId = std::uint32_t;      // synDeviceId
using Stream = struct OpaqueStream*; // synStreamHandle

/// synDmaDir
enum class Direction : int { host_to_device = 0, device_to_host = 1 };

struct DeviceInfo { // synDeviceInfoV2
    std::uint64_t sram_base_address = 0;
    std::uint64_t dram_base_address = 0;
    std::uint32_t sram_size = 0;
    std::uint64_t dram_size = 0;
    std::uint64_t tpc_enabled_mask = 0;
    std::uint8_t dram_enabled = 0;
    std::uint32_t device_id = 0;
    std::uint32_t fd = 0;
    int device_type = 0;
    std::uint8_t device_index = 0;
    std::uint64_t global_hbm_base_address = 0;
};

using Initialize = Status();
using DeviceAcquire = Status(DeviceId*, const char* pci_bus_id);
using DeviceRelease = Status(DeviceId);
using DeviceGetInfo = Status(DeviceId, DeviceInfo*);
using DeviceMalloc = Status(DeviceId, std::uint64_t size, std::uint64_t wanted, std::uint32_t flags,
                            std::uint64_t* address);
using DeviceFree = Status(DeviceId, std::uint64_t address, std::uint32_t flags);
using HostMalloc = Status(DeviceId, std::uint64_t size, std::uint32_t flags, void** address);
using HostFree = Status(DeviceId, const void* address, std::uint32_t flags);
using StreamCreate = Status(Stream*, DeviceId, std::uint32_t flags);
using StreamDestroy = Status(Stream);
using StreamSynchronize = Status(Stream);
using MemCopyAsync = Status(Stream, std::uint64_t from, std::uint64_t size, std::uint64_t to,
                            Direction);

} // namespace rdmabuf::detail::habana
