// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "providers/rocm/rocm_abi.hpp"

// The functions of the fake libhsa-runtime64.so.1. tests/build/abi compares their types with
// <hsa/hsa_ext_amd.h>.

/// Calls FUNCTION(namespace, type, exported name) for each function.
#define ROCM_FUNCTIONS(FUNCTION)                                                                 \
    FUNCTION(rdmabuf::detail::rocm, Init, hsa_init)                                              \
    FUNCTION(rdmabuf::detail::rocm, ShutDown, hsa_shut_down)                                     \
    FUNCTION(rdmabuf::detail::rocm, StatusString, hsa_status_string)                             \
    FUNCTION(rdmabuf::detail::rocm, SystemGetInfo, hsa_system_get_info)                          \
    FUNCTION(rdmabuf::detail::rocm, IterateAgents, hsa_iterate_agents)                           \
    FUNCTION(rdmabuf::detail::rocm, AgentGetInfo, hsa_agent_get_info)                            \
    FUNCTION(rdmabuf::detail::rocm, MemoryCopy, hsa_memory_copy)                                 \
    FUNCTION(rdmabuf::detail::rocm, AgentIterateMemoryPools, hsa_amd_agent_iterate_memory_pools) \
    FUNCTION(rdmabuf::detail::rocm, MemoryPoolGetInfo, hsa_amd_memory_pool_get_info)             \
    FUNCTION(rdmabuf::detail::rocm, MemoryPoolAllocate, hsa_amd_memory_pool_allocate)            \
    FUNCTION(rdmabuf::detail::rocm, MemoryPoolFree, hsa_amd_memory_pool_free)                    \
    FUNCTION(rdmabuf::detail::rocm, GetPointerInfo, hsa_amd_pointer_info)                        \
    FUNCTION(rdmabuf::detail::rocm, RegisterDeallocationCallback,                                \
             hsa_amd_register_deallocation_callback)                                             \
    FUNCTION(rdmabuf::detail::rocm, DeregisterDeallocationCallback,                              \
             hsa_amd_deregister_deallocation_callback)
/// Functions of HSA AMD extension 1.1.
#define ROCM_FUNCTIONS_1_1(FUNCTION) \
    FUNCTION(rdmabuf::detail::rocm, ExportDmaBuf, hsa_amd_portable_export_dmabuf)
/// Functions of HSA AMD extension 1.9.
#define ROCM_FUNCTIONS_1_9(FUNCTION) \
    FUNCTION(rdmabuf::detail::rocm, ExportDmaBufV2, hsa_amd_portable_export_dmabuf_v2)
