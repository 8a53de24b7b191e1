// SPDX-License-Identifier: BSD-3-Clause
// What the loader asks a driver for: tables of functions.
#include <level_zero/ze_ddi.h>

#include "driver_calls.hpp"

namespace calls = fake_level_zero::calls;

extern "C" {

ze_result_t zeGetGlobalProcAddrTable(ze_api_version_t /*version*/, ze_global_dditable_t* table) {
    table->pfnInit = calls::init;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetDriverProcAddrTable(ze_api_version_t /*version*/, ze_driver_dditable_t* table) {
    table->pfnGet = calls::driver_get;
    table->pfnGetApiVersion = calls::driver_get_api_version;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetDeviceProcAddrTable(ze_api_version_t /*version*/, ze_device_dditable_t* table) {
    table->pfnGet = calls::device_get;
    table->pfnGetProperties = calls::device_get_properties;
    table->pfnGetExternalMemoryProperties = calls::device_get_external_memory_properties;
    table->pfnGetCommandQueueGroupProperties = calls::device_get_queue_group_properties;
    table->pfnPciGetPropertiesExt = calls::device_pci_get_properties;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetContextProcAddrTable(ze_api_version_t /*version*/, ze_context_dditable_t* table) {
    table->pfnCreate = calls::context_create;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetMemProcAddrTable(ze_api_version_t /*version*/, ze_mem_dditable_t* table) {
    table->pfnAllocDevice = calls::mem_alloc_device;
    table->pfnFree = calls::mem_free;
    table->pfnGetAllocProperties = calls::mem_get_alloc_properties;
    table->pfnGetAddressRange = calls::mem_get_address_range;
    table->pfnGetIpcHandle = calls::mem_get_ipc_handle;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetCommandListProcAddrTable(ze_api_version_t /*version*/,
                                          ze_command_list_dditable_t* table) {
    table->pfnCreateImmediate = calls::command_list_create_immediate;
    table->pfnDestroy = calls::command_list_destroy;
    table->pfnAppendMemoryCopy = calls::command_list_append_memory_copy;
    return ZE_RESULT_SUCCESS;
}

} // extern "C"
