// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// Declares the part of the Level Zero interface that rdmabuf uses, so that the build needs no
/// Level Zero. The values and layouts are those of <level_zero/ze_api.h>. Where that header is
/// installed, tests/build/abi/level_zero.cpp checks that the values and layouts agree.
namespace rdmabuf::detail::level_zero {

using Result = std::uint32_t; // ze_result_t
inline constexpr Result success = 0;
inline constexpr Result device_lost = 0x70000001;
inline constexpr Result out_of_host_memory = 0x70000002;
inline constexpr Result out_of_device_memory = 0x70000003;
inline constexpr Result insufficient_permissions = 0x70010000;
inline constexpr Result not_available = 0x70010001;
inline constexpr Result dependency_unavailable = 0x70020000;
inline constexpr Result uninitialized = 0x78000001;
inline constexpr Result unsupported_version = 0x78000002;
inline constexpr Result unsupported_feature = 0x78000003;
inline constexpr Result invalid_argument = 0x78000004;
inline constexpr Result invalid_null_handle = 0x78000005;
inline constexpr Result invalid_null_pointer = 0x78000007;
inline constexpr Result unsupported_size = 0x78000009;
inline constexpr Result unsupported_alignment = 0x7800000a;
inline constexpr Result invalid_enumeration = 0x7800000c;
inline constexpr Result unsupported_enumeration = 0x7800000d;
/// Intel's driver returns this result for an address that is in a pool but in no allocation. Older
/// versions of Level Zero do not define the result.
inline constexpr Result address_not_found = 0x78000021;
inline constexpr Result unknown_error = 0x7ffffffe;

using DriverHandle = struct OpaqueDriver*; // ze_driver_handle_t
using Device = struct OpaqueDevice*;       // ze_device_handle_t
using Context = struct OpaqueContext*;     // ze_context_handle_t
using CommandList = struct OpaqueList*;    // ze_command_list_handle_t
using EventHandle = struct OpaqueEvent*;   // ze_event_handle_t

/// ze_structure_type_t
enum class Structure : std::uint32_t {
    device_properties = 0x3,
    command_queue_group_properties = 0x6,
    device_external_memory_properties = 0xc,
    context_desc = 0xd,
    command_queue_desc = 0xe,
    device_mem_alloc_desc = 0x15,
    memory_allocation_properties = 0x17,
    external_memory_export_desc = 0x18,
    external_memory_export_fd = 0x1a,
    pci_ext_properties = 0x10008,
};

/// ze_device_type_t
inline constexpr std::uint32_t device_type_gpu = 1;
/// Has the value of ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF.
inline constexpr std::uint32_t external_dma_buf = 2;
/// Has the value of ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY.
inline constexpr std::uint32_t queue_group_copies = 2;
/// ze_command_queue_mode_t
inline constexpr std::uint32_t queue_synchronous = 1;

/// ze_memory_type_t
enum class MemoryType : std::uint32_t {
    unknown = 0,
    host = 1,
    device = 2,
    shared = 3,
    /// Host memory of the program that was imported with zeMemAllocHost().
    host_imported = 4,
};

/// ze_context_desc_t
struct ContextDesc {
    Structure type = Structure::context_desc;
    const void* next = nullptr;
    std::uint32_t flags = 0;
};

/// ze_device_properties_t
struct DeviceProperties {
    Structure structure = Structure::device_properties;
    void* next = nullptr;
    std::uint32_t type = 0;
    std::uint32_t vendor_id = 0;
    std::uint32_t device_id = 0;
    std::uint32_t flags = 0;
    std::uint32_t subdevice_id = 0;
    std::uint32_t core_clock_rate = 0;
    std::uint64_t max_mem_alloc_size = 0;
    std::array<std::uint32_t, 6> limits{};
    std::uint32_t num_slices = 0;
    std::uint64_t timer_resolution = 0;
    std::uint32_t timestamp_valid_bits = 0;
    std::uint32_t kernel_timestamp_valid_bits = 0;
    std::array<std::uint8_t, 16> uuid{};
    std::array<char, 256> name{};
};

/// Has the same layout as ze_device_external_memory_properties_t.
struct ExternalMemoryProperties {
    Structure structure = Structure::device_external_memory_properties;
    void* next = nullptr;
    std::uint32_t memory_import_types = 0;
    std::uint32_t memory_export_types = 0;
    std::uint32_t image_import_types = 0;
    std::uint32_t image_export_types = 0;
};

/// Has the same layout as ze_pci_ext_properties_t.
struct PciProperties {
    Structure structure = Structure::pci_ext_properties;
    void* next = nullptr;
    std::uint32_t domain = 0;
    std::uint32_t bus = 0;
    std::uint32_t device = 0;
    std::uint32_t function = 0;
    std::int32_t speed_generation = 0;
    std::int32_t speed_width = 0;
    std::int64_t speed_bandwidth = 0;
};

/// Has the same layout as ze_command_queue_group_properties_t.
struct QueueGroupProperties {
    Structure structure = Structure::command_queue_group_properties;
    void* next = nullptr;
    std::uint32_t flags = 0;
    std::size_t max_fill_pattern_size = 0;
    std::uint32_t queues = 0;
};

/// Has the same layout as ze_command_queue_desc_t.
struct QueueDesc {
    Structure type = Structure::command_queue_desc;
    const void* next = nullptr;
    std::uint32_t ordinal = 0;
    std::uint32_t index = 0;
    std::uint32_t flags = 0;
    std::uint32_t mode = 0;
    std::uint32_t priority = 0;
};

/// Has the same layout as ze_external_memory_export_desc_t.
struct ExportDesc {
    Structure type = Structure::external_memory_export_desc;
    const void* next = nullptr;
    std::uint32_t flags = external_dma_buf;
};

/// Has the same layout as ze_device_mem_alloc_desc_t.
struct DeviceMemDesc {
    Structure type = Structure::device_mem_alloc_desc;
    const void* next = nullptr;
    std::uint32_t flags = 0;
    std::uint32_t ordinal = 0;
};

/// Has the same layout as ze_external_memory_export_fd_t.
struct ExportFd {
    Structure type = Structure::external_memory_export_fd;
    const void* next = nullptr;
    std::uint32_t flags = external_dma_buf;
    int fd = -1;
};

/// Has the same layout as ze_memory_allocation_properties_t.
struct AllocationProperties {
    Structure structure = Structure::memory_allocation_properties;
    void* next = nullptr;
    MemoryType type = MemoryType::unknown;
    std::uint64_t id = 0;
    std::uint64_t page_size = 0;
};

using Init = Result(std::uint32_t flags);
using DriverGet = Result(std::uint32_t* count, DriverHandle*);
using DriverGetApiVersion = Result(DriverHandle, std::uint32_t*);
using DeviceGet = Result(DriverHandle, std::uint32_t* count, Device*);
using DeviceGetProperties = Result(Device, DeviceProperties*);
using DeviceGetExternalMemoryProperties = Result(Device, ExternalMemoryProperties*);
using DeviceGetQueueGroupProperties = Result(Device, std::uint32_t* count, QueueGroupProperties*);
using DevicePciGetProperties = Result(Device, PciProperties*);
using ContextCreate = Result(DriverHandle, const ContextDesc*, Context*);
using MemAllocDevice = Result(Context, const DeviceMemDesc*, std::size_t size,
                              std::size_t alignment, Device, void**);
using MemFree = Result(Context, void*);
using MemGetAllocProperties = Result(Context, const void*, AllocationProperties*, Device*);
using MemGetAddressRange = Result(Context, const void*, void** base, std::size_t*);
using VirtualMemGetAccessAttribute = Result(Context, const void*, std::size_t,
                                            std::uint32_t* access, std::size_t* reserved);
using CommandListCreateImmediate = Result(Context, Device, const QueueDesc*, CommandList*);
using CommandListDestroy = Result(CommandList);
using CommandListAppendMemoryCopy = Result(CommandList, void* to, const void* from, std::size_t,
                                           EventHandle signal, std::uint32_t count, EventHandle*);

} // namespace rdmabuf::detail::level_zero
