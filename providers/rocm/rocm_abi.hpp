// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// Declares the part of the HSA runtime's interface that rdmabuf uses, so that the build needs no
/// ROCm. The values are those of <hsa/hsa.h> and <hsa/hsa_ext_amd.h>. Where these headers are
/// installed, tests/build/abi/rocm.cpp checks that the values agree.
namespace rdmabuf::detail::rocm {

using Status = int; // hsa_status_t
inline constexpr Status success = 0;
inline constexpr Status not_supported = 47; // HSA AMD extension 1.9
inline constexpr Status general_error = 0x1000;
inline constexpr Status invalid_argument = 0x1001;
inline constexpr Status invalid_allocation = 0x1003;
inline constexpr Status invalid_agent = 0x1004;
inline constexpr Status out_of_resources = 0x1008;
inline constexpr Status not_initialized = 0x100B;

/// hsa_agent_t
struct Agent {
    std::uint64_t handle = 0;
};
/// hsa_amd_memory_pool_t
struct MemoryPool {
    std::uint64_t handle = 0;
};

/// hsa_system_info_t
enum class SystemInfo : int { dmabuf_supported = 0x204 };
/// The enumerators have values of hsa_agent_info_t and hsa_amd_agent_info_t.
enum class AgentInfo : int { device = 17, bdfid = 0xA006, domain = 0xA00F };
/// hsa_device_type_t
enum class DeviceType : int { cpu = 0, gpu = 1 };
/// The enumerators have values of hsa_amd_memory_pool_info_t.
enum class PoolInfo : int { segment = 0, global_flags = 1, alloc_allowed = 5 };
/// hsa_amd_segment_t
inline constexpr int global_segment = 0;
/// Has the value of HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED.
inline constexpr std::uint32_t coarse_grained = 4;
/// Has the value of HSA_AMD_DMABUF_MAPPING_TYPE_PCIE.
inline constexpr std::uint64_t mapping_type_pcie = 1;

/// hsa_amd_pointer_type_t
enum class PointerType : int {
    unknown = 0,
    /// Memory that was allocated from a pool.
    hsa = 1,
    /// Host memory of the program that is pinned (hsa_amd_memory_lock, hipHostRegister).
    locked = 2,
    graphics = 3,
    /// Memory of another process.
    ipc = 4,
    /// Reserved addresses (hsa_amd_vmem_address_reserve). Before HSA AMD extension 1.12, HSA also
    /// reports this type where memory is mapped. The reported owner is a CPU. On some APUs, HSA
    /// also reports this type for allocated host memory, with a host_base that is not null.
    reserved = 5,
    /// Memory that is mapped to reserved addresses (hsa_amd_vmem_map, hipMemMap). HSA AMD extension
    /// 1.12 and newer report this type. For this type, HSA reports the queried address in place of
    /// the start of the mapping, and the length of the whole mapping.
    mapped = 6,
};

/// hsa_amd_pointer_info_t
struct PointerInfo {
    std::uint32_t size = sizeof(PointerInfo);
    PointerType type = PointerType::unknown;
    void* agent_base = nullptr;
    void* host_base = nullptr;
    std::size_t length = 0;
    void* user_data = nullptr;
    Agent owner;
    std::uint32_t global_flags = 0;
};

using AgentVisitor = Status(Agent, void*);
using PoolVisitor = Status(MemoryPool, void*);
/// Function type hsa_amd_deallocation_callback_t.
using DeallocationCallback = void(void* pointer, void* data);

using Init = Status();
using ShutDown = Status();
using StatusString = Status(Status, const char**);
using SystemGetInfo = Status(SystemInfo, void*);
using IterateAgents = Status(AgentVisitor*, void*);
using AgentGetInfo = Status(Agent, AgentInfo, void*);
using MemoryCopy = Status(void*, const void*, std::size_t);
using AgentIterateMemoryPools = Status(Agent, PoolVisitor*, void*);
using MemoryPoolGetInfo = Status(MemoryPool, PoolInfo, void*);
using MemoryPoolAllocate = Status(MemoryPool, std::size_t, std::uint32_t flags, void**);
using MemoryPoolFree = Status(void*);
using GetPointerInfo = Status(const void*, PointerInfo*, void* (*allocate)(std::size_t),
                              std::uint32_t* count, Agent** accessible);
using RegisterDeallocationCallback = Status(void*, DeallocationCallback*, void* data);
using DeregisterDeallocationCallback = Status(void*, DeallocationCallback*);
using ExportDmaBuf = Status(const void*, std::size_t, int*, std::uint64_t* offset);
using ExportDmaBufV2 = Status(const void*, std::size_t, int*, std::uint64_t* offset,
                              std::uint64_t flags);

} // namespace rdmabuf::detail::rocm
