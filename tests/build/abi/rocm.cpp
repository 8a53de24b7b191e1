// SPDX-License-Identifier: BSD-3-Clause
// Compiles where our declarations of the HSA runtime's interface agree with AMD's. There is nothing
// to run.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <cstddef>
#include <type_traits>

#include "same_abi.hpp"
#include "tests/providers/fakes/rocm/functions.hpp"

namespace abi = rdmabuf::detail::rocm;

using same_abi::same;

#define SAME_FIELD(ours, theirs)                                                                  \
    static_assert(offsetof(abi::PointerInfo, ours) == offsetof(hsa_amd_pointer_info_t, theirs) && \
                  sizeof(abi::PointerInfo::ours) == sizeof(hsa_amd_pointer_info_t::theirs))

ROCM_FUNCTIONS(SAME_DECLARATION)
static_assert(std::is_same_v<abi::DeallocationCallback*, hsa_amd_deallocation_callback_t>);

static_assert(sizeof(abi::Status) == sizeof(hsa_status_t));
static_assert(sizeof(abi::Agent) == sizeof(hsa_agent_t));
static_assert(sizeof(abi::MemoryPool) == sizeof(hsa_amd_memory_pool_t));
static_assert(sizeof(abi::DeviceType) == sizeof(hsa_device_type_t));
static_assert(sizeof(abi::PointerType) == sizeof(hsa_amd_pointer_type_t));
static_assert(sizeof(abi::global_segment) == sizeof(hsa_amd_segment_t));

// It may only grow, so that of a newer header has these fields where they are here.
static_assert(sizeof(abi::PointerInfo) <= sizeof(hsa_amd_pointer_info_t));
SAME_FIELD(size, size);
SAME_FIELD(type, type);
SAME_FIELD(agent_base, agentBaseAddress);
SAME_FIELD(host_base, hostBaseAddress);
SAME_FIELD(length, sizeInBytes);
SAME_FIELD(user_data, userData);
SAME_FIELD(owner, agentOwner);
SAME_FIELD(global_flags, global_flags);

static_assert(same(abi::success, HSA_STATUS_SUCCESS));
static_assert(same(abi::general_error, HSA_STATUS_ERROR));
static_assert(same(abi::invalid_argument, HSA_STATUS_ERROR_INVALID_ARGUMENT));
static_assert(same(abi::invalid_allocation, HSA_STATUS_ERROR_INVALID_ALLOCATION));
static_assert(same(abi::invalid_agent, HSA_STATUS_ERROR_INVALID_AGENT));
static_assert(same(abi::out_of_resources, HSA_STATUS_ERROR_OUT_OF_RESOURCES));
static_assert(same(abi::not_initialized, HSA_STATUS_ERROR_NOT_INITIALIZED));

static_assert(same(abi::AgentInfo::device, HSA_AGENT_INFO_DEVICE));
static_assert(same(abi::AgentInfo::bdfid, HSA_AMD_AGENT_INFO_BDFID));
static_assert(same(abi::AgentInfo::domain, HSA_AMD_AGENT_INFO_DOMAIN));
static_assert(same(abi::DeviceType::cpu, HSA_DEVICE_TYPE_CPU));
static_assert(same(abi::DeviceType::gpu, HSA_DEVICE_TYPE_GPU));

static_assert(same(abi::PoolInfo::segment, HSA_AMD_MEMORY_POOL_INFO_SEGMENT));
static_assert(same(abi::PoolInfo::global_flags, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS));
static_assert(same(abi::PoolInfo::alloc_allowed, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED));
static_assert(same(abi::global_segment, HSA_AMD_SEGMENT_GLOBAL));
static_assert(same(abi::coarse_grained, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED));

static_assert(same(abi::PointerType::unknown, HSA_EXT_POINTER_TYPE_UNKNOWN));
static_assert(same(abi::PointerType::hsa, HSA_EXT_POINTER_TYPE_HSA));
static_assert(same(abi::PointerType::locked, HSA_EXT_POINTER_TYPE_LOCKED));
static_assert(same(abi::PointerType::graphics, HSA_EXT_POINTER_TYPE_GRAPHICS));
static_assert(same(abi::PointerType::ipc, HSA_EXT_POINTER_TYPE_IPC));

// As far as the header that is installed knows them: HSA AMD extension 1.1, and 1.9.
#define EXTENSION (HSA_AMD_INTERFACE_VERSION_MAJOR * 1000 + HSA_AMD_INTERFACE_VERSION_MINOR)
#if EXTENSION >= 1001
ROCM_FUNCTIONS_1_1(SAME_DECLARATION)
static_assert(same(abi::SystemInfo::dmabuf_supported, HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED));
#endif
#if EXTENSION >= 1009
ROCM_FUNCTIONS_1_9(SAME_DECLARATION)
static_assert(same(abi::mapping_type_pcie, HSA_AMD_DMABUF_MAPPING_TYPE_PCIE));
static_assert(same(abi::not_supported, HSA_STATUS_ERROR_NOT_SUPPORTED));
static_assert(same(abi::PointerType::reserved, HSA_EXT_POINTER_TYPE_RESERVED_ADDR));
#endif
