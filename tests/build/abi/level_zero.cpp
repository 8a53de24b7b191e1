// SPDX-License-Identifier: BSD-3-Clause
// Compiles where our declarations of Level Zero's interface agree with its own. There is nothing to
// run.
#include <level_zero/ze_api.h>

#include <cstddef>

#include "providers/level_zero/level_zero_abi.hpp"
#include "same_abi.hpp"

namespace abi = rdmabuf::detail::level_zero;

using same_abi::same;

#define SAME_SIZE(ours, theirs) static_assert(sizeof(abi::ours) == sizeof(theirs))
#define SAME_MEMBER(ours, our_member, theirs, their_member)                            \
    static_assert(offsetof(abi::ours, our_member) == offsetof(theirs, their_member) && \
                  sizeof(abi::ours::our_member) == sizeof(theirs::their_member))

SAME_FUNCTION(abi::Init, zeInit, "zeInit");
SAME_FUNCTION(abi::DriverGet, zeDriverGet, "zeDriverGet");
SAME_FUNCTION(abi::DriverGetApiVersion, zeDriverGetApiVersion, "zeDriverGetApiVersion");
SAME_FUNCTION(abi::DeviceGet, zeDeviceGet, "zeDeviceGet");
SAME_FUNCTION(abi::DeviceGetProperties, zeDeviceGetProperties, "zeDeviceGetProperties");
SAME_FUNCTION(abi::DeviceGetExternalMemoryProperties, zeDeviceGetExternalMemoryProperties,
              "zeDeviceGetExternalMemoryProperties");
SAME_FUNCTION(abi::DeviceGetQueueGroupProperties, zeDeviceGetCommandQueueGroupProperties,
              "zeDeviceGetCommandQueueGroupProperties");
SAME_FUNCTION(abi::DevicePciGetProperties, zeDevicePciGetPropertiesExt,
              "zeDevicePciGetPropertiesExt");
SAME_FUNCTION(abi::ContextCreate, zeContextCreate, "zeContextCreate");
SAME_FUNCTION(abi::MemAllocDevice, zeMemAllocDevice, "zeMemAllocDevice");
SAME_FUNCTION(abi::MemFree, zeMemFree, "zeMemFree");
SAME_FUNCTION(abi::MemGetAllocProperties, zeMemGetAllocProperties, "zeMemGetAllocProperties");
SAME_FUNCTION(abi::MemGetAddressRange, zeMemGetAddressRange, "zeMemGetAddressRange");
SAME_FUNCTION(abi::VirtualMemGetAccessAttribute, zeVirtualMemGetAccessAttribute,
              "zeVirtualMemGetAccessAttribute");
SAME_FUNCTION(abi::CommandListCreateImmediate, zeCommandListCreateImmediate,
              "zeCommandListCreateImmediate");
SAME_FUNCTION(abi::CommandListDestroy, zeCommandListDestroy, "zeCommandListDestroy");
SAME_FUNCTION(abi::CommandListAppendMemoryCopy, zeCommandListAppendMemoryCopy,
              "zeCommandListAppendMemoryCopy");

SAME_SIZE(Result, ze_result_t);
SAME_SIZE(Structure, ze_structure_type_t);
SAME_SIZE(MemoryType, ze_memory_type_t);

SAME_SIZE(ContextDesc, ze_context_desc_t);
SAME_MEMBER(ContextDesc, type, ze_context_desc_t, stype);
SAME_MEMBER(ContextDesc, next, ze_context_desc_t, pNext);
SAME_MEMBER(ContextDesc, flags, ze_context_desc_t, flags);

SAME_SIZE(DeviceProperties, ze_device_properties_t);
SAME_MEMBER(DeviceProperties, structure, ze_device_properties_t, stype);
SAME_MEMBER(DeviceProperties, next, ze_device_properties_t, pNext);
SAME_MEMBER(DeviceProperties, type, ze_device_properties_t, type);
SAME_MEMBER(DeviceProperties, name, ze_device_properties_t, name);

SAME_SIZE(ExternalMemoryProperties, ze_device_external_memory_properties_t);
SAME_MEMBER(ExternalMemoryProperties, structure, ze_device_external_memory_properties_t, stype);
SAME_MEMBER(ExternalMemoryProperties, next, ze_device_external_memory_properties_t, pNext);
SAME_MEMBER(ExternalMemoryProperties, memory_export_types, ze_device_external_memory_properties_t,
            memoryAllocationExportTypes);

SAME_SIZE(PciProperties, ze_pci_ext_properties_t);
SAME_MEMBER(PciProperties, structure, ze_pci_ext_properties_t, stype);
SAME_MEMBER(PciProperties, next, ze_pci_ext_properties_t, pNext);
SAME_MEMBER(PciProperties, domain, ze_pci_ext_properties_t, address.domain);
SAME_MEMBER(PciProperties, bus, ze_pci_ext_properties_t, address.bus);
SAME_MEMBER(PciProperties, device, ze_pci_ext_properties_t, address.device);
SAME_MEMBER(PciProperties, function, ze_pci_ext_properties_t, address.function);

SAME_SIZE(QueueGroupProperties, ze_command_queue_group_properties_t);
SAME_MEMBER(QueueGroupProperties, structure, ze_command_queue_group_properties_t, stype);
SAME_MEMBER(QueueGroupProperties, next, ze_command_queue_group_properties_t, pNext);
SAME_MEMBER(QueueGroupProperties, flags, ze_command_queue_group_properties_t, flags);

SAME_SIZE(QueueDesc, ze_command_queue_desc_t);
SAME_MEMBER(QueueDesc, type, ze_command_queue_desc_t, stype);
SAME_MEMBER(QueueDesc, next, ze_command_queue_desc_t, pNext);
SAME_MEMBER(QueueDesc, ordinal, ze_command_queue_desc_t, ordinal);
SAME_MEMBER(QueueDesc, index, ze_command_queue_desc_t, index);
SAME_MEMBER(QueueDesc, flags, ze_command_queue_desc_t, flags);
SAME_MEMBER(QueueDesc, mode, ze_command_queue_desc_t, mode);
SAME_MEMBER(QueueDesc, priority, ze_command_queue_desc_t, priority);

SAME_SIZE(ExportDesc, ze_external_memory_export_desc_t);
SAME_MEMBER(ExportDesc, type, ze_external_memory_export_desc_t, stype);
SAME_MEMBER(ExportDesc, next, ze_external_memory_export_desc_t, pNext);
SAME_MEMBER(ExportDesc, flags, ze_external_memory_export_desc_t, flags);

SAME_SIZE(DeviceMemDesc, ze_device_mem_alloc_desc_t);
SAME_MEMBER(DeviceMemDesc, type, ze_device_mem_alloc_desc_t, stype);
SAME_MEMBER(DeviceMemDesc, next, ze_device_mem_alloc_desc_t, pNext);
SAME_MEMBER(DeviceMemDesc, flags, ze_device_mem_alloc_desc_t, flags);
SAME_MEMBER(DeviceMemDesc, ordinal, ze_device_mem_alloc_desc_t, ordinal);

SAME_SIZE(ExportFd, ze_external_memory_export_fd_t);
SAME_MEMBER(ExportFd, type, ze_external_memory_export_fd_t, stype);
SAME_MEMBER(ExportFd, next, ze_external_memory_export_fd_t, pNext);
SAME_MEMBER(ExportFd, flags, ze_external_memory_export_fd_t, flags);
SAME_MEMBER(ExportFd, fd, ze_external_memory_export_fd_t, fd);

SAME_SIZE(AllocationProperties, ze_memory_allocation_properties_t);
SAME_MEMBER(AllocationProperties, structure, ze_memory_allocation_properties_t, stype);
SAME_MEMBER(AllocationProperties, next, ze_memory_allocation_properties_t, pNext);
SAME_MEMBER(AllocationProperties, type, ze_memory_allocation_properties_t, type);
SAME_MEMBER(AllocationProperties, id, ze_memory_allocation_properties_t, id);
SAME_MEMBER(AllocationProperties, page_size, ze_memory_allocation_properties_t, pageSize);

static_assert(same(abi::success, ZE_RESULT_SUCCESS));
static_assert(same(abi::device_lost, ZE_RESULT_ERROR_DEVICE_LOST));
static_assert(same(abi::out_of_host_memory, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY));
static_assert(same(abi::out_of_device_memory, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
static_assert(same(abi::insufficient_permissions, ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS));
static_assert(same(abi::not_available, ZE_RESULT_ERROR_NOT_AVAILABLE));
static_assert(same(abi::dependency_unavailable, ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE));
static_assert(same(abi::uninitialized, ZE_RESULT_ERROR_UNINITIALIZED));
static_assert(same(abi::unsupported_version, ZE_RESULT_ERROR_UNSUPPORTED_VERSION));
static_assert(same(abi::unsupported_feature, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE));
static_assert(same(abi::invalid_argument, ZE_RESULT_ERROR_INVALID_ARGUMENT));
static_assert(same(abi::invalid_null_handle, ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
static_assert(same(abi::invalid_null_pointer, ZE_RESULT_ERROR_INVALID_NULL_POINTER));
static_assert(same(abi::unsupported_size, ZE_RESULT_ERROR_UNSUPPORTED_SIZE));
static_assert(same(abi::unsupported_alignment, ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT));
static_assert(same(abi::invalid_enumeration, ZE_RESULT_ERROR_INVALID_ENUMERATION));
static_assert(same(abi::unsupported_enumeration, ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
static_assert(same(abi::unknown_error, ZE_RESULT_ERROR_UNKNOWN));

static_assert(same(abi::Structure::device_properties, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES));
static_assert(same(abi::Structure::command_queue_group_properties,
                   ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES));
static_assert(same(abi::Structure::device_external_memory_properties,
                   ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES));
static_assert(same(abi::Structure::context_desc, ZE_STRUCTURE_TYPE_CONTEXT_DESC));
static_assert(same(abi::Structure::command_queue_desc, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC));
static_assert(same(abi::Structure::device_mem_alloc_desc, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC));
static_assert(same(abi::Structure::memory_allocation_properties,
                   ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES));
static_assert(same(abi::Structure::external_memory_export_desc,
                   ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC));
static_assert(same(abi::Structure::external_memory_export_fd,
                   ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD));
static_assert(same(abi::Structure::pci_ext_properties, ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES));

static_assert(same(abi::device_type_gpu, ZE_DEVICE_TYPE_GPU));
static_assert(same(abi::external_dma_buf, ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF));
static_assert(same(abi::queue_group_copies, ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY));
static_assert(same(abi::queue_synchronous, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS));

static_assert(same(abi::MemoryType::unknown, ZE_MEMORY_TYPE_UNKNOWN));
static_assert(same(abi::MemoryType::host, ZE_MEMORY_TYPE_HOST));
static_assert(same(abi::MemoryType::device, ZE_MEMORY_TYPE_DEVICE));
static_assert(same(abi::MemoryType::shared, ZE_MEMORY_TYPE_SHARED));

// Older headers do not have this result.
#ifdef ZE_API_VERSION_CURRENT_M
#if ZE_API_VERSION_CURRENT_M >= ZE_MAKE_VERSION(1, 15)
static_assert(same(abi::address_not_found, ZE_RESULT_ERROR_ADDRESS_NOT_FOUND));
#endif
#endif
