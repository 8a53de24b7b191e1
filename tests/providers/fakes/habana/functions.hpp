// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "providers/habana/habana_abi.hpp"

// The functions of the fake libhl-thunk.so and libSynapse.so. tests/build/abi compares their types
// with <hlthunk.h> and <synapse_api.h>.

/// Calls FUNCTION(namespace, type, exported name) for each function of libhl-thunk.so.
#define THUNK_FUNCTIONS(FUNCTION)                                                           \
    FUNCTION(rdmabuf::detail::habana, GetDeviceName, hlthunk_get_device_name_from_fd)       \
    FUNCTION(rdmabuf::detail::habana, GetPciBusId, hlthunk_get_pci_bus_id_from_fd)          \
    FUNCTION(rdmabuf::detail::habana, OpenControl, hlthunk_open_control)                    \
    FUNCTION(rdmabuf::detail::habana, Close, hlthunk_close)                                 \
    FUNCTION(rdmabuf::detail::habana, ExportMemory, hlthunk_device_memory_export_dmabuf_fd) \
    FUNCTION(rdmabuf::detail::habana, ExportMappedMemory,                                   \
             hlthunk_device_mapped_memory_export_dmabuf_fd)
/// The same for each function of libSynapse.so.
#define SYNAPSE_FUNCTIONS(FUNCTION)                                            \
    FUNCTION(rdmabuf::detail::habana, Initialize, synInitialize)               \
    FUNCTION(rdmabuf::detail::habana, DeviceAcquire, synDeviceAcquire)         \
    FUNCTION(rdmabuf::detail::habana, DeviceRelease, synDeviceRelease)         \
    FUNCTION(rdmabuf::detail::habana, DeviceGetInfo, synDeviceGetInfoV2)       \
    FUNCTION(rdmabuf::detail::habana, DeviceMalloc, synDeviceMalloc)           \
    FUNCTION(rdmabuf::detail::habana, DeviceFree, synDeviceFree)               \
    FUNCTION(rdmabuf::detail::habana, HostMalloc, synHostMalloc)               \
    FUNCTION(rdmabuf::detail::habana, HostFree, synHostFree)                   \
    FUNCTION(rdmabuf::detail::habana, StreamCreate, synStreamCreateGeneric)    \
    FUNCTION(rdmabuf::detail::habana, StreamDestroy, synStreamDestroy)         \
    FUNCTION(rdmabuf::detail::habana, StreamSynchronize, synStreamSynchronize) \
    FUNCTION(rdmabuf::detail::habana, MemCopyAsync, synMemCopyAsync)
