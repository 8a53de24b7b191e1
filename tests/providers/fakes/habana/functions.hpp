// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "providers/habana/habana_abi.hpp"

// The functions of the fake libhl-thunk.so. tests/build/abi compares their types with <hlthunk.h>.

/// Calls FUNCTION(namespace, type, exported name) for each function.
#define THUNK_FUNCTIONS(FUNCTION)                                                     \
    FUNCTION(rdmabuf::detail::habana, GetDeviceName, hlthunk_get_device_name_from_fd) \
    FUNCTION(rdmabuf::detail::habana, GetPciBusId, hlthunk_get_pci_bus_id_from_fd)    \
    FUNCTION(rdmabuf::detail::habana, OpenControl, hlthunk_open_control)              \
    FUNCTION(rdmabuf::detail::habana, Close, hlthunk_close)                           \
    FUNCTION(rdmabuf::detail::habana, ExportMappedMemory,                             \
             hlthunk_device_mapped_memory_export_dmabuf_fd)
