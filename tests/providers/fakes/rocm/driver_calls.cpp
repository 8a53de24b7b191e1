// SPDX-License-Identifier: BSD-3-Clause
// Functions of libhsa-runtime64.so.1 that rdmabuf calls.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "functions.hpp"
#include "machine.hpp"

// A definition with another type than the type by which rdmabuf calls the function does not
// compile.
#define DECLARE_FUNCTION(scope, type, name) extern "C" scope::type name;
ROCM_FUNCTIONS(DECLARE_FUNCTION)
ROCM_FUNCTIONS_1_1(DECLARE_FUNCTION)
ROCM_FUNCTIONS_1_9(DECLARE_FUNCTION)

namespace abi = rdmabuf::detail::rocm;
using abi::Status;
using fake_driver::address_of;
using fake_driver::Allocation;
using fake_driver::Kind;
using fake_driver::Machine;
using fake_driver::Needs;
using fake_driver::pointer_to;
using fake_driver::Setting;

namespace {

/// Handles of agents: the CPU, and behind it the GPUs.
constexpr std::uint64_t cpu = 1;
constexpr std::uint64_t first_gpu = 2;
constexpr std::uint64_t pools_of_agent = 16;
/// Distance of the device's address of locked memory from the program's address.
constexpr std::uint64_t locked_distance = std::uint64_t{1} << 46U;

/// Memory pools of each GPU: group memory, fine-grained memory, coarse-grained memory that cannot
/// be allocated, and coarse-grained memory.
struct Pool {
    int segment;
    std::uint32_t flags;
    bool allocatable;
};
constexpr Pool pools[] = {{3, 0, false},
                          {abi::global_segment, abi::coarse_grained, false},
                          {abi::global_segment, 2, true},
                          {abi::global_segment, abi::coarse_grained, true}};
constexpr std::uint64_t own_pool = 3;

template <class Body>
Status call(const char* function, Body&& body) {
    return fake_driver::call<Status>(function, Needs::initialised, body);
}

bool is_host(const Allocation& allocation) {
    return allocation.kind == Kind::host || allocation.kind == Kind::locked;
}

std::uint64_t last_agent(const Machine& machine) {
    return cpu + machine.devices.size();
}

template <class Value>
Status put(void* data, Value value) {
    std::memcpy(data, &value, sizeof(value));
    return abi::success;
}

/// Calls @p visit for each handle, until a call fails. The machine is not locked.
template <class Handle>
Status visit_all(std::uint64_t first, std::uint64_t end, Status (*visit)(Handle, void*),
                 void* data) {
    for (std::uint64_t handle = first; handle < end; ++handle) {
        const Status visited = visit(Handle{.handle = handle}, data);
        if (visited != abi::success) {
            return visited;
        }
    }
    return abi::success;
}

abi::PointerType type_of(Kind kind) {
    switch (kind) {
        case Kind::locked:
            return abi::PointerType::locked;
        case Kind::graphics:
            return abi::PointerType::graphics;
        case Kind::ipc:
            return abi::PointerType::ipc;
        case Kind::reserved:
            return abi::PointerType::reserved;
        case Kind::mapped:
            return abi::PointerType::mapped;
        default:
            return abi::PointerType::hsa;
    }
}

/// Returns whether the CPU can write to an address.
bool is_writable(const void* pointer) {
    char same = *static_cast<const char*>(pointer);
    const iovec local{.iov_base = const_cast<void*>(pointer), .iov_len = 1};
    const iovec remote{.iov_base = &same, .iov_len = 1};
    return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

/// Exports the block of an allocation. @param offset  receives the offset of the memory in the
/// block
Status export_dmabuf(Machine& machine, const void* pointer, std::size_t size, int* fd,
                     std::uint64_t* offset, std::uint64_t flags) {
    if (pointer == nullptr || size == 0 || fd == nullptr || offset == nullptr) {
        return abi::invalid_argument;
    }
    const std::uint64_t address = address_of(pointer);
    const Allocation* const found = machine.holder(address);
    if (found == nullptr || found->kind == Kind::locked ||
        size > found->size - (address - found->start)) {
        return abi::invalid_allocation;
    }
    if (type_of(found->kind) != abi::PointerType::hsa) {
        // AMD's runtime dereferences the pool of the memory, which does not exist.
        std::abort();
    }
    if (is_host(*found)) {
        return abi::invalid_agent;
    }
    const auto pcie = static_cast<Status>(machine.setting(Setting::pcie_result));
    if (flags == abi::mapping_type_pcie && pcie != abi::success) {
        return pcie;
    }
    int shared = -1;
    if (!machine.share(found->block, machine.blocks.at(found->block).size, &shared)) {
        return abi::out_of_resources;
    }
    if (shared >= 0) {
        *fd = shared;
        *offset = address - found->block +
                  static_cast<std::uint64_t>(machine.setting(Setting::displacement));
    }
    return abi::success;
}

} // namespace

const fake_driver::Vendor& fake_driver::vendor() {
    static const Vendor rocm{.uninitialised = abi::not_initialized};
    return rocm;
}

Status hsa_init() {
    return fake_driver::call<Status>(__func__, Needs::nothing, [](Machine& machine) -> Status {
        if (machine.initialised_by_parent()) {
            return abi::general_error;
        }
        machine.initialise();
        return abi::success;
    });
}

Status hsa_shut_down() {
    return call(__func__, [](Machine& machine) -> Status {
        if (--machine.references == 0) {
            machine.free_all(); // without calls of deallocation callbacks
        }
        return abi::success;
    });
}

Status hsa_status_string(Status status, const char** text) {
    static const std::map<Status, const char*> texts{
        {abi::general_error, "HSA_STATUS_ERROR: Something."},
        {abi::invalid_argument, "HSA_STATUS_ERROR_INVALID_ARGUMENT: An argument."},
        {abi::invalid_allocation, "HSA_STATUS_ERROR_INVALID_ALLOCATION: An allocation."},
        {abi::invalid_agent, "HSA_STATUS_ERROR_INVALID_AGENT: An agent."},
        {abi::out_of_resources, "HSA_STATUS_ERROR_OUT_OF_RESOURCES: Resources."},
        {abi::not_initialized, "HSA_STATUS_ERROR_NOT_INITIALIZED: The runtime."},
    };
    const auto found = texts.find(status);
    if (found == texts.end()) {
        return abi::invalid_argument; // AMD's runtime does not know all results that it returns
    }
    *text = found->second;
    return abi::success;
}

Status hsa_system_get_info(abi::SystemInfo attribute, void* value) {
    return call(__func__, [&](Machine& machine) -> Status {
        return attribute == abi::SystemInfo::dmabuf_supported
                   ? put(value, machine.setting(Setting::no_dma_bufs) == 0)
                   : abi::invalid_argument;
    });
}

Status hsa_iterate_agents(abi::AgentVisitor* visit, void* data) {
    std::uint64_t last = 0;
    const Status refused = call(__func__, [&](Machine& machine) -> Status {
        last = last_agent(machine);
        return abi::success;
    });
    return refused != abi::success ? refused : visit_all(cpu, last + 1, visit, data);
}

Status hsa_agent_get_info(abi::Agent agent, abi::AgentInfo attribute, void* value) {
    return call(__func__, [&](Machine& machine) -> Status {
        if (agent.handle == 0 || agent.handle > last_agent(machine)) {
            return abi::invalid_agent;
        }
        const bool gpu = agent.handle >= first_gpu;
        const auto index = static_cast<unsigned>(agent.handle - first_gpu);
        switch (attribute) {
            case abi::AgentInfo::device:
                return put(value, gpu ? abi::DeviceType::gpu : abi::DeviceType::cpu);
            case abi::AgentInfo::bdfid:
                // The bits above the bus are no part of the address.
                return put(value, gpu ? 0x10000000U | (0x3BU + index) << 8U : 0U);
            case abi::AgentInfo::domain:
                return put(value, 0U);
        }
        return abi::invalid_argument;
    });
}

Status hsa_memory_copy(void* to, const void* from, std::size_t size) {
    return call(__func__, [&](Machine& machine) -> Status {
        std::byte* const device_to = machine.range(address_of(to), size);
        const std::byte* const device_from = machine.range(address_of(from), size);
        if ((device_to == nullptr) == (device_from == nullptr)) {
            return abi::invalid_argument;
        }
        if (device_from == nullptr && !is_writable(from)) {
            return abi::out_of_resources;
        }
        std::memcpy(device_to != nullptr ? device_to : to,
                    device_from != nullptr ? device_from : from, size);
        return abi::success;
    });
}

Status hsa_amd_agent_iterate_memory_pools(abi::Agent agent, abi::PoolVisitor* visit, void* data) {
    std::uint64_t count = std::size(pools);
    const Status refused = call(__func__, [&](Machine& machine) -> Status {
        count -= machine.setting(Setting::fine_grained_only) != 0 ? 1 : 0;
        return agent.handle == 0 || agent.handle > last_agent(machine) ? abi::invalid_agent
                                                                       : abi::success;
    });
    const std::uint64_t first = agent.handle * pools_of_agent;
    return refused != abi::success ? refused : visit_all(first, first + count, visit, data);
}

Status hsa_amd_memory_pool_get_info(abi::MemoryPool pool, abi::PoolInfo attribute, void* value) {
    return call(__func__, [&](Machine&) -> Status {
        const Pool& found = pools[pool.handle % pools_of_agent];
        switch (attribute) {
            case abi::PoolInfo::segment:
                return put(value, found.segment);
            case abi::PoolInfo::global_flags:
                return put(value, found.flags);
            case abi::PoolInfo::alloc_allowed:
                return put(value, found.allocatable);
        }
        return abi::invalid_argument;
    });
}

Status hsa_amd_memory_pool_allocate(abi::MemoryPool pool, std::size_t size, std::uint32_t flags,
                                    void** pointer) {
    return call(__func__, [&](Machine& machine) -> Status {
        if (size == 0 || flags != 0 || pool.handle % pools_of_agent != own_pool) {
            return abi::invalid_argument;
        }
        const auto gpu = static_cast<unsigned>(pool.handle / pools_of_agent - first_gpu);
        *pointer = pointer_to(machine.allocate({.size = size, .device = gpu, .counted = true}));
        return *pointer != nullptr ? abi::success : abi::out_of_resources;
    });
}

Status hsa_amd_memory_pool_free(void* pointer) {
    const Status refused = call(__func__, [](Machine&) { return abi::success; });
    return refused != abi::success || Machine::get().free(address_of(pointer))
               ? refused
               : abi::invalid_allocation;
}

Status hsa_amd_pointer_info(const void* pointer, abi::PointerInfo* info,
                            void* (*allocate)(std::size_t), std::uint32_t* count,
                            abi::Agent** accessible) {
    return call(__func__, [&](Machine& machine) -> Status {
        if (pointer == nullptr || info == nullptr || info->size == 0 || allocate != nullptr ||
            accessible != nullptr) {
            return abi::invalid_argument;
        }
        if (count != nullptr) {
            *count = 0;
        }
        const std::size_t known = machine.setting(Setting::short_pointer_info) != 0
                                      ? offsetof(abi::PointerInfo, owner)
                                      : sizeof(abi::PointerInfo);
        const std::size_t size = std::min<std::size_t>(info->size, known);
        abi::PointerInfo found;
        found.size = static_cast<std::uint32_t>(size);
        if (const Allocation* const allocation = machine.holder(address_of(pointer))) {
            const bool locked = allocation->kind == Kind::locked;
            found.type = type_of(allocation->kind);
            if ((allocation->kind == Kind::mapped || allocation->kind == Kind::host) &&
                machine.setting(Setting::mapped_as_reserved) != 0) {
                found.type = abi::PointerType::reserved;
            }
            // For mapped memory the runtime reports the queried address and the length of the whole
            // mapping.
            found.host_base = pointer_to(
                found.type == abi::PointerType::mapped ? address_of(pointer) : allocation->start);
            found.agent_base =
                pointer_to(address_of(found.host_base) + (locked ? locked_distance : 0));
            found.length = machine.setting(Setting::no_extent) != 0 ? 0 : allocation->size;
            if (found.type == abi::PointerType::reserved && !is_host(*allocation)) {
                found.host_base = nullptr;
            }
            // Reserved addresses belong to node 0 (Runtime::VMemoryAddressReserve()).
            const bool of_cpu = is_host(*allocation) || found.type == abi::PointerType::reserved;
            found.owner.handle = of_cpu ? cpu : first_gpu + allocation->device;
            found.global_flags = abi::coarse_grained;
        }
        std::memcpy(info, &found, size);
        return abi::success;
    });
}

Status hsa_amd_register_deallocation_callback(void* pointer, abi::DeallocationCallback* callback,
                                              void* data) {
    return call(__func__, [&](Machine& machine) -> Status {
        Allocation* const found = machine.holder(address_of(pointer));
        if (found == nullptr || type_of(found->kind) != abi::PointerType::hsa ||
            machine.setting(Setting::unreported_frees) != 0) {
            return abi::invalid_allocation;
        }
        found->notifiers.push_back({.pointer = pointer, .callback = callback, .data = data});
        return abi::success;
    });
}

Status hsa_amd_deregister_deallocation_callback(void* pointer,
                                                abi::DeallocationCallback* callback) {
    return call(__func__, [&](Machine& machine) -> Status {
        Allocation* const found = machine.holder(address_of(pointer));
        const auto registered = [&](const fake_driver::Notifier& notifier) {
            return notifier.pointer == pointer && notifier.callback == callback;
        };
        return found != nullptr && std::erase_if(found->notifiers, registered) != 0
                   ? abi::success
                   : abi::invalid_argument;
    });
}

Status hsa_amd_portable_export_dmabuf(const void* pointer, std::size_t size, int* fd,
                                      std::uint64_t* offset) {
    return call(__func__, [&](Machine& machine) {
        return export_dmabuf(machine, pointer, size, fd, offset, 0);
    });
}

Status hsa_amd_portable_export_dmabuf_v2(const void* pointer, std::size_t size, int* fd,
                                         std::uint64_t* offset, std::uint64_t flags) {
    return call(__func__, [&](Machine& machine) {
        return export_dmabuf(machine, pointer, size, fd, offset, flags);
    });
}
