// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <level_zero/ze_api.h>

/// The functions that the driver has for the loader, by Level Zero's own declarations.
namespace fake_level_zero::calls {

decltype(::zeInit) init;
decltype(::zeDriverGet) driver_get;
decltype(::zeDriverGetApiVersion) driver_get_api_version;
decltype(::zeDeviceGet) device_get;
decltype(::zeDeviceGetProperties) device_get_properties;
decltype(::zeDeviceGetExternalMemoryProperties) device_get_external_memory_properties;
decltype(::zeDeviceGetCommandQueueGroupProperties) device_get_queue_group_properties;
decltype(::zeDevicePciGetPropertiesExt) device_pci_get_properties;
decltype(::zeContextCreate) context_create;
decltype(::zeMemAllocDevice) mem_alloc_device;
decltype(::zeMemFree) mem_free;
decltype(::zeMemGetAllocProperties) mem_get_alloc_properties;
decltype(::zeMemGetAddressRange) mem_get_address_range;
decltype(::zeMemGetIpcHandle) mem_get_ipc_handle;
decltype(::zeCommandListCreateImmediate) command_list_create_immediate;
decltype(::zeCommandListDestroy) command_list_destroy;
decltype(::zeCommandListAppendMemoryCopy) command_list_append_memory_copy;

} // namespace fake_level_zero::calls
