// SPDX-License-Identifier: BSD-3-Clause
// The functions of libhsa-runtime64.so.1 that rdmabuf calls.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "machine.hpp"

namespace abi = rdmabuf::detail::rocm;
using abi::Status;
using fake_rocm::Allocation;
using fake_rocm::Machine;

// The definitions below have the types that rdmabuf calls them by, or they do not compile.
extern "C" {
extern abi::Init hsa_init;
extern abi::ShutDown hsa_shut_down;
extern abi::StatusString hsa_status_string;
extern abi::SystemGetInfo hsa_system_get_info;
extern abi::IterateAgents hsa_iterate_agents;
extern abi::AgentGetInfo hsa_agent_get_info;
extern abi::MemoryCopy hsa_memory_copy;
extern abi::AgentIterateMemoryPools hsa_amd_agent_iterate_memory_pools;
extern abi::MemoryPoolGetInfo hsa_amd_memory_pool_get_info;
extern abi::MemoryPoolAllocate hsa_amd_memory_pool_allocate;
extern abi::MemoryPoolFree hsa_amd_memory_pool_free;
extern abi::GetPointerInfo hsa_amd_pointer_info;
extern abi::RegisterDeallocationCallback hsa_amd_register_deallocation_callback;
extern abi::DeregisterDeallocationCallback hsa_amd_deregister_deallocation_callback;
extern abi::ExportDmaBuf hsa_amd_portable_export_dmabuf;
#ifndef FAKE_ROCM_OLDER
extern abi::ExportDmaBufV2 hsa_amd_portable_export_dmabuf_v2;
#endif
extern abi::CloseDmaBuf hsa_amd_portable_close_dmabuf;
}

namespace {

constexpr std::uint64_t pools_of_agent = 16;

/// What each GPU has: that of a work group, that which is shared in small grains, its own, and its
/// own that cannot be allocated.
struct Pool {
    int segment;
    std::uint32_t flags;
    bool allocatable;
};
constexpr Pool pools[] = {{3, 0, false}, {0, 4, false}, {0, 2, true}, {0, 4, true}};
constexpr std::uint64_t own_pool = 3;

/// A call, counted, with the machine locked; the status it fails with before it is looked at.
class Call {
  public:
    explicit Call(const char* function)
        : machine_(Machine::get()), lock_(lock_after_others(function)) {
        if (const auto planned = machine_.script.enter(function)) {
            refused_ = *planned;
        } else if (machine_.references == 0 || machine_.process != ::getpid()) {
            refused_ = abi::not_initialized;
        }
    }

    [[nodiscard]] Status refused() const noexcept { return refused_; }
    Machine* operator->() const noexcept { return &machine_; }
    void unlock() { lock_.unlock(); }

    [[nodiscard]] bool has_agent(abi::Agent agent) const {
        return agent.handle != 0 &&
               agent.handle < fake_rocm::first_gpu + static_cast<std::uint64_t>(machine_.gpus);
    }

  private:
    std::unique_lock<std::mutex> lock_after_others(const char* function) {
        machine_.interfere(function);
        return std::unique_lock(machine_.mutex);
    }

    Machine& machine_;
    std::unique_lock<std::mutex> lock_;
    Status refused_ = abi::success;
};

template <class Value>
void put(void* data, Value value) {
    std::memcpy(data, &value, sizeof(value));
}

std::uint64_t number_of(const void* pointer) {
    return reinterpret_cast<std::uint64_t>(pointer);
}

void* pointer_to(std::uint64_t address) {
    return reinterpret_cast<void*>(address);
}

/// Calls @p visit with each, until it has enough.
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

/// The allocation's part of a block, as a descriptor of the block and an offset in it.
Status export_dmabuf(Call& call, const void* pointer, std::size_t size, int* fd,
                     std::uint64_t* offset, std::uint64_t flags) {
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (pointer == nullptr || size == 0 || fd == nullptr || offset == nullptr) {
        return abi::invalid_argument;
    }
    const std::uint64_t address = number_of(pointer);
    std::uint64_t base = 0;
    const Allocation* const found = call->holder(address, &base);
    if (found == nullptr || found->type == abi::PointerType::locked ||
        size > found->size - (address - base)) {
        return abi::invalid_allocation;
    }
    if (found->type != abi::PointerType::hsa) {
        // The real one looks for the pool that the memory is of, and there is none.
        std::abort();
    }
    if (found->owner.handle == fake_rocm::cpu) {
        return abi::invalid_agent;
    }
    if (flags == abi::mapping_type_pcie && call->pcie != abi::success) {
        return call->pcie;
    }
    if (call->no_descriptor) {
        return abi::success;
    }
    const int shared = call->memory.share(found->block, found->block_size - call->shortfall);
    if (shared < 0) {
        return abi::out_of_resources;
    }
    if (call->inheritable) {
        ::fcntl(shared, F_SETFD, 0);
    }
    call->exports.insert(shared);
    *fd = shared;
    *offset = address - found->block + call->displacement;
    return abi::success;
}

/// The bytes of @p size from a device address on; null when they are not one allocation's.
std::byte* device_bytes(Call& call, const void* pointer, std::size_t size) {
    std::uint64_t base = 0;
    const Allocation* const found = call->holder(number_of(pointer), &base);
    if (found == nullptr || size > found->size - (number_of(pointer) - base)) {
        return nullptr;
    }
    return call->memory.bytes(number_of(pointer));
}

} // namespace

Status hsa_init() {
    const Call call("hsa_init");
    if (call.refused() != abi::success && call.refused() != abi::not_initialized) {
        return call.refused();
    }
    if (call->references != 0 && call->process != ::getpid()) {
        return abi::general_error; // the child of a process that uses it
    }
    ++call->references;
    call->process = ::getpid();
    return abi::success;
}

Status hsa_shut_down() {
    const Call call("hsa_shut_down");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (--call->references == 0) {
        // Without a word to those who want to know of deallocations.
        call->drop_memory();
        call->process = 0;
    }
    return abi::success;
}

Status hsa_status_string(Status status, const char** text) {
    switch (status) {
        case abi::general_error:
            *text = "HSA_STATUS_ERROR: Something.";
            return abi::success;
        case abi::invalid_argument:
            *text = "HSA_STATUS_ERROR_INVALID_ARGUMENT: An argument.";
            return abi::success;
        case abi::invalid_allocation:
            *text = "HSA_STATUS_ERROR_INVALID_ALLOCATION: An allocation.";
            return abi::success;
        case abi::invalid_agent:
            *text = "HSA_STATUS_ERROR_INVALID_AGENT: An agent.";
            return abi::success;
        case abi::out_of_resources:
            *text = "HSA_STATUS_ERROR_OUT_OF_RESOURCES: Resources.";
            return abi::success;
        case abi::not_initialized:
            *text = "HSA_STATUS_ERROR_NOT_INITIALIZED: The runtime.";
            return abi::success;
        default:
            return abi::invalid_argument; // it does not know all it returns
    }
}

Status hsa_system_get_info(abi::SystemInfo attribute, void* value) {
    const Call call("hsa_system_get_info");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (attribute != abi::SystemInfo::dmabuf_supported) {
        return abi::invalid_argument;
    }
    put(value, call->dmabufs);
    return abi::success;
}

Status hsa_iterate_agents(abi::AgentVisitor* visit, void* data) {
    Call call("hsa_iterate_agents");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    const auto end = fake_rocm::first_gpu + static_cast<std::uint64_t>(call->gpus);
    call.unlock();
    return visit_all(fake_rocm::cpu, end, visit, data);
}

Status hsa_agent_get_info(abi::Agent agent, abi::AgentInfo attribute, void* value) {
    const Call call("hsa_agent_get_info");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (!call.has_agent(agent)) {
        return abi::invalid_agent;
    }
    const bool gpu = agent.handle >= fake_rocm::first_gpu;
    switch (attribute) {
        case abi::AgentInfo::device:
            put(value, gpu ? abi::DeviceType::gpu : abi::DeviceType::cpu);
            return abi::success;
        case abi::AgentInfo::bdfid:
            // Bus, device and function, and above them what is no part of the address.
            put(value,
                gpu ? 0x10000000U | (0x3BU + static_cast<unsigned>(agent.handle) - 2U) << 8U : 0U);
            return abi::success;
        case abi::AgentInfo::domain:
            put(value, 0U);
            return abi::success;
    }
    return abi::invalid_argument;
}

Status hsa_memory_copy(void* to, const void* from, std::size_t size) {
    Call call("hsa_memory_copy");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    std::byte* const device_to = device_bytes(call, to, size);
    const std::byte* const device_from = device_bytes(call, from, size);
    if ((device_to == nullptr) == (device_from == nullptr)) {
        return abi::invalid_argument;
    }
    std::memcpy(device_to != nullptr ? device_to : to, device_from != nullptr ? device_from : from,
                size);
    return abi::success;
}

Status hsa_amd_agent_iterate_memory_pools(abi::Agent agent, abi::PoolVisitor* visit, void* data) {
    Call call("hsa_amd_agent_iterate_memory_pools");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (!call.has_agent(agent)) {
        return abi::invalid_agent;
    }
    const std::uint64_t first = agent.handle * pools_of_agent;
    const std::uint64_t end = first + (call->fine_only ? own_pool : std::size(pools));
    call.unlock();
    return visit_all(first, end, visit, data);
}

Status hsa_amd_memory_pool_get_info(abi::MemoryPool pool, abi::PoolInfo attribute, void* value) {
    const Call call("hsa_amd_memory_pool_get_info");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    const Pool& found = pools[pool.handle % pools_of_agent];
    switch (attribute) {
        case abi::PoolInfo::segment:
            put(value, found.segment);
            return abi::success;
        case abi::PoolInfo::global_flags:
            put(value, found.flags);
            return abi::success;
        case abi::PoolInfo::alloc_allowed:
            put(value, found.allocatable);
            return abi::success;
    }
    return abi::invalid_argument;
}

Status hsa_amd_memory_pool_allocate(abi::MemoryPool pool, std::size_t size, std::uint32_t flags,
                                    void** pointer) {
    const Call call("hsa_amd_memory_pool_allocate");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (size == 0 || flags != 0 || pool.handle % pools_of_agent != own_pool) {
        return abi::invalid_argument;
    }
    Allocation allocation;
    allocation.size = size;
    allocation.owner.handle = pool.handle / pools_of_agent;
    const std::uint64_t start = call->allocate(std::move(allocation), false);
    if (start == 0) {
        return abi::out_of_resources;
    }
    *pointer = pointer_to(start);
    return abi::success;
}

Status hsa_amd_memory_pool_free(void* pointer) {
    Call call("hsa_amd_memory_pool_free");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    call.unlock();
    return call->free(number_of(pointer)) ? abi::success : abi::invalid_allocation;
}

Status hsa_amd_pointer_info(const void* pointer, abi::PointerInfo* info,
                            void* (*allocate)(std::size_t), std::uint32_t* count,
                            abi::Agent** accessible) {
    const Call call("hsa_amd_pointer_info");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (pointer == nullptr || info == nullptr || info->size == 0 || allocate != nullptr ||
        accessible != nullptr) {
        return abi::invalid_argument;
    }
    if (count != nullptr) {
        *count = 0;
    }
    const std::size_t known =
        call->short_info ? offsetof(abi::PointerInfo, owner) : sizeof(abi::PointerInfo);
    const std::size_t size = std::min<std::size_t>(info->size, known);
    abi::PointerInfo answer;
    answer.size = static_cast<std::uint32_t>(size);
    std::uint64_t base = 0;
    if (const Allocation* const found = call->holder(number_of(pointer), &base)) {
        const bool locked = found->type == abi::PointerType::locked;
        answer.type = found->type;
        answer.agent_base = pointer_to(locked ? base + fake_rocm::locked_distance : base);
        answer.host_base = pointer_to(base);
        if (found->type == abi::PointerType::mapped) {
            // As the real one: the address of the query, and the length of the whole mapping.
            answer.agent_base = pointer_to(number_of(pointer));
            answer.host_base = answer.agent_base;
        }
        answer.length = found->size;
        answer.owner = found->owner;
        answer.global_flags = abi::coarse_grained;
    }
    std::memcpy(info, &answer, size);
    return abi::success;
}

Status hsa_amd_register_deallocation_callback(void* pointer, abi::DeallocationCallback* callback,
                                              void* data) {
    const Call call("hsa_amd_register_deallocation_callback");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    Allocation* const found = call->holder(number_of(pointer), nullptr);
    if (found == nullptr || found->type != abi::PointerType::hsa || found->mute) {
        return abi::invalid_allocation;
    }
    found->notifiers.push_back({.pointer = pointer, .callback = callback, .data = data});
    return abi::success;
}

Status hsa_amd_deregister_deallocation_callback(void* pointer,
                                                abi::DeallocationCallback* callback) {
    const Call call("hsa_amd_deregister_deallocation_callback");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    Allocation* const found = call->holder(number_of(pointer), nullptr);
    const auto registered = [&](const fake_rocm::Notifier& notifier) {
        return notifier.pointer == pointer && notifier.callback == callback;
    };
    return found != nullptr && std::erase_if(found->notifiers, registered) != 0
               ? abi::success
               : abi::invalid_argument;
}

Status hsa_amd_portable_export_dmabuf(const void* pointer, std::size_t size, int* fd,
                                      std::uint64_t* offset) {
    Call call("hsa_amd_portable_export_dmabuf");
    return export_dmabuf(call, pointer, size, fd, offset, 0);
}

#ifndef FAKE_ROCM_OLDER
Status hsa_amd_portable_export_dmabuf_v2(const void* pointer, std::size_t size, int* fd,
                                         std::uint64_t* offset, std::uint64_t flags) {
    Call call("hsa_amd_portable_export_dmabuf_v2");
    return export_dmabuf(call, pointer, size, fd, offset, flags);
}
#endif

Status hsa_amd_portable_close_dmabuf(int fd) {
    const Call call("hsa_amd_portable_close_dmabuf");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (call->exports.erase(fd) == 0) {
        return abi::resource_free; // closed before, or never the driver's
    }
    return ::close(fd) == 0 ? abi::success : abi::resource_free;
}
