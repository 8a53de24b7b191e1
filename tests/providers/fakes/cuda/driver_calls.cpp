// SPDX-License-Identifier: BSD-3-Clause
// The functions of libcuda.so.1 that rdmabuf calls.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "call.hpp"

namespace abi = rdmabuf::detail::cuda;
using abi::Result;
using fake_cuda::Allocation;
using fake_cuda::Call;
using fake_cuda::contexts;
using fake_cuda::Machine;

// The definitions below have the types that rdmabuf calls them by, or they do not compile.
extern "C" {
extern abi::GetErrorName cuGetErrorName;
extern abi::Init cuInit;
extern abi::DriverGetVersion cuDriverGetVersion;
extern abi::DeviceGetCount cuDeviceGetCount;
extern abi::DeviceGet cuDeviceGet;
extern abi::DeviceGetAttribute cuDeviceGetAttribute;
extern abi::DeviceGetPciBusId cuDeviceGetPCIBusId;
extern abi::DevicePrimaryContextRetain cuDevicePrimaryCtxRetain;
extern abi::DevicePrimaryContextRelease cuDevicePrimaryCtxRelease_v2;
extern abi::DevicePrimaryContextGetState cuDevicePrimaryCtxGetState;
extern abi::ContextGetCurrent cuCtxGetCurrent;
extern abi::ContextPushCurrent cuCtxPushCurrent_v2;
extern abi::ContextPopCurrent cuCtxPopCurrent_v2;
extern abi::PointerGetAttribute cuPointerGetAttribute;
extern abi::PointerGetAttributes cuPointerGetAttributes;
extern abi::PointerSetAttribute cuPointerSetAttribute;
extern abi::MemGetAddressRange cuMemGetAddressRange_v2;
#ifndef FAKE_CUDA_OLDER
extern abi::MemGetHandleForAddressRange cuMemGetHandleForAddressRange;
extern abi::FlushGpuDirectRdmaWrites cuFlushGPUDirectRDMAWrites;
#endif
extern abi::MemAlloc cuMemAlloc_v2;
extern abi::MemFree cuMemFree_v2;
extern abi::MemcpyHtoD cuMemcpyHtoD_v2;
extern abi::MemcpyDtoH cuMemcpyDtoH_v2;
}

namespace {

template <class Value>
void put(void* data, Value value) {
    std::memcpy(data, &value, sizeof(value));
}

/// The value of one attribute; zeroes for memory that is not CUDA's.
Result describe(const Machine& machine, void* data, abi::PointerAttribute attribute,
                const Allocation* found, std::uint64_t base) {
    if (machine.unknown_attributes.contains(static_cast<int>(attribute))) {
        return abi::invalid_value;
    }
    const Allocation nothing{.type = abi::MemoryType::none};
    const Allocation& allocation = found != nullptr ? *found : nothing;
    switch (attribute) {
        case abi::PointerAttribute::context:
            put(data, reinterpret_cast<std::uintptr_t>(allocation.context));
            return abi::success;
        case abi::PointerAttribute::memory_type:
            put(data, allocation.type);
            return abi::success;
        case abi::PointerAttribute::sync_memops:
            put(data, allocation.sync_memops);
            return abi::success;
        case abi::PointerAttribute::buffer_id:
            put(data, allocation.id);
            return abi::success;
        case abi::PointerAttribute::is_managed:
            put(data, unsigned{allocation.managed});
            return abi::success;
        case abi::PointerAttribute::device_ordinal:
            put(data, found != nullptr ? allocation.device : -2);
            return abi::success;
        case abi::PointerAttribute::range_start:
            // For packed allocations, too, the block: nothing may be concluded from it.
            put(data, allocation.block);
            return abi::success;
        case abi::PointerAttribute::range_size:
            put(data, allocation.block_size);
            return abi::success;
        case abi::PointerAttribute::is_gpu_direct_rdma_capable:
            put(data, allocation.capable);
            return abi::success;
        case abi::PointerAttribute::mempool_handle:
            put(data, std::uintptr_t{allocation.pooled});
            return abi::success;
        case abi::PointerAttribute::mapping_base_address:
            put(data, base);
            return abi::success;
        case abi::PointerAttribute::mapping_size:
            put(data, allocation.size);
            return abi::success;
    }
    return abi::invalid_value;
}

#ifndef FAKE_CUDA_OLDER
/// What a range of whole pages may be exported as: one allocation, or mappings of one device and
/// kind without a gap between them.
Result check_range(Machine& machine, std::uint64_t start, std::size_t size) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    if (size == 0 || start % page != 0 || size % page != 0) {
        return abi::invalid_value;
    }
    std::uint64_t base = 0;
    const Allocation* first = machine.holder(start, &base);
    if (first == nullptr && machine.packed) {
        // The page begins before the allocation in it.
        const auto next = machine.allocations.upper_bound(start);
        if (next != machine.allocations.end() && next->first < start + size) {
            base = next->first;
            first = &next->second;
        }
    }
    if (first == nullptr || first->managed || first->pooled) {
        return abi::invalid_value;
    }
    if (!first->mapped()) {
        const std::uint64_t end = machine.packed ? first->block + first->block_size
                                                 : base + (first->size + page - 1) / page * page;
        return start + size <= end ? abi::success : abi::invalid_value;
    }
    for (std::uint64_t at = start; at < start + size;) {
        const Allocation* const mapping = machine.holder(at, &base);
        if (mapping == nullptr || mapping->device != first->device || mapping->capable == 0) {
            return abi::invalid_value;
        }
        at = base + mapping->size;
    }
    return abi::success;
}
#endif

} // namespace

Result cuGetErrorName(Result result, const char** name) {
    switch (result) {
        case abi::invalid_value:
            *name = "CUDA_ERROR_INVALID_VALUE";
            return abi::success;
        case abi::out_of_memory:
            *name = "CUDA_ERROR_OUT_OF_MEMORY";
            return abi::success;
        case abi::not_initialized:
            *name = "CUDA_ERROR_NOT_INITIALIZED";
            return abi::success;
        case abi::deinitialized:
            *name = "CUDA_ERROR_DEINITIALIZED";
            return abi::success;
        case abi::no_device:
            *name = "CUDA_ERROR_NO_DEVICE";
            return abi::success;
        case abi::invalid_device:
            *name = "CUDA_ERROR_INVALID_DEVICE";
            return abi::success;
        case abi::invalid_context:
            *name = "CUDA_ERROR_INVALID_CONTEXT";
            return abi::success;
        case abi::context_is_destroyed:
            *name = "CUDA_ERROR_CONTEXT_IS_DESTROYED";
            return abi::success;
        case abi::not_supported:
            *name = "CUDA_ERROR_NOT_SUPPORTED";
            return abi::success;
        default:
            *name = nullptr;
            return abi::invalid_value;
    }
}

Result cuInit(unsigned flags) {
    const Call call("cuInit");
    if (call.refused() != abi::success && call.refused() != abi::not_initialized) {
        return call.refused();
    }
    if (flags != 0) {
        return abi::invalid_value;
    }
    if (call->initialised != 0 && call->initialised != ::getpid()) {
        return abi::not_initialized; // as in the child of a process that uses CUDA
    }
    if (call->devices.empty()) {
        return abi::no_device;
    }
    call->initialised = ::getpid();
    return abi::success;
}

Result cuDriverGetVersion(int* version) {
    *version = 13000;
    return abi::success;
}

Result cuDeviceGetCount(int* count) {
    const Call call("cuDeviceGetCount");
    *count = static_cast<int>(call->devices.size());
    return call.refused();
}

Result cuDeviceGet(abi::Device* device, int ordinal) {
    const Call call("cuDeviceGet");
    *device = ordinal;
    return call.refused() != abi::success ? call.refused()
           : call.has_device(ordinal)     ? abi::success
                                          : abi::invalid_device;
}

Result cuDeviceGetAttribute(int* value, abi::DeviceAttribute attribute, abi::Device device) {
    const Call call("cuDeviceGetAttribute");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (!call.has_device(device)) {
        return abi::invalid_device;
    }
    const auto& attributes = call.device(device).attributes;
    const auto found = attributes.find(static_cast<int>(attribute));
    if (found == attributes.end() || found->second < 0) {
        return abi::invalid_value;
    }
    *value = found->second;
    return abi::success;
}

Result cuDeviceGetPCIBusId(char* text, int length, abi::Device device) {
    const Call call("cuDeviceGetPCIBusId");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                  static_cast<unsigned>(0x3b + device));
    return abi::success;
}

Result cuDevicePrimaryCtxRetain(abi::Context* context, abi::Device device) {
    const Call call("cuDevicePrimaryCtxRetain");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (!call.has_device(device)) {
        return abi::invalid_device;
    }
    abi::OpaqueContext& primary = call.device(device).primary;
    ++primary.references;
    primary.alive = true;
    *context = &primary;
    return abi::success;
}

Result cuDevicePrimaryCtxRelease_v2(abi::Device device) {
    const Call call("cuDevicePrimaryCtxRelease_v2");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    abi::OpaqueContext& primary = call.device(device).primary;
    if (primary.references == 0) {
        return abi::invalid_context;
    }
    primary.alive = --primary.references != 0;
    return abi::success;
}

Result cuDevicePrimaryCtxGetState(abi::Device device, unsigned* flags, int* active) {
    const Call call("cuDevicePrimaryCtxGetState");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (!call.has_device(device)) {
        return abi::invalid_device;
    }
    *flags = 0;
    *active = call.device(device).primary.alive ? 1 : 0;
    return abi::success;
}

Result cuCtxGetCurrent(abi::Context* context) {
    const Call call("cuCtxGetCurrent");
    *context = contexts().empty() ? nullptr : contexts().back();
    return call.refused();
}

Result cuCtxPushCurrent_v2(abi::Context context) {
    const Call call("cuCtxPushCurrent_v2");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (context == nullptr || !context->alive) {
        return abi::invalid_context;
    }
    contexts().push_back(context);
    return abi::success;
}

Result cuCtxPopCurrent_v2(abi::Context* context) {
    const Call call("cuCtxPopCurrent_v2");
    if (contexts().empty()) {
        return abi::invalid_context;
    }
    *context = contexts().back();
    contexts().pop_back();
    return call.refused();
}

Result cuPointerGetAttribute(void* data, abi::PointerAttribute attribute,
                             abi::DevicePointer address) {
    const Call call("cuPointerGetAttribute");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    std::uint64_t base = 0;
    const Allocation* const found = call->holder(address, &base);
    return found != nullptr ? describe(*call.operator->(), data, attribute, found, base)
                            : abi::invalid_value;
}

Result cuPointerGetAttributes(unsigned count, abi::PointerAttribute* attributes, void** data,
                              abi::DevicePointer address) {
    const Call call("cuPointerGetAttributes");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    std::uint64_t base = 0;
    const Allocation* const found = call->holder(address, &base);
    for (unsigned i = 0; i < count; ++i) {
        const Result described = describe(*call.operator->(), data[i], attributes[i], found, base);
        if (described != abi::success) {
            return described;
        }
    }
    return abi::success;
}

Result cuPointerSetAttribute(const void* value, abi::PointerAttribute attribute,
                             abi::DevicePointer address) {
    const Call call("cuPointerSetAttribute");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    Allocation* const found = call->holder(address, nullptr);
    if (found == nullptr || attribute != abi::PointerAttribute::sync_memops || found->mapped()) {
        return abi::invalid_value;
    }
    if (!call.reaches(*found)) {
        return abi::invalid_context;
    }
    std::memcpy(&found->sync_memops, value, sizeof(found->sync_memops));
    return abi::success;
}

Result cuMemGetAddressRange_v2(abi::DevicePointer* base, std::size_t* size,
                               abi::DevicePointer address) {
    const Call call("cuMemGetAddressRange_v2");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (contexts().empty()) {
        return abi::invalid_context;
    }
    const Allocation* const found = call->holder(address, base);
    if (found == nullptr || found->managed || found->type != abi::MemoryType::device) {
        return abi::not_found;
    }
    *size = found->size;
    // The next mapping may be another device's: what is current says whom the program asks.
    return found->mapped() || call.reaches(*found) ? abi::success : abi::invalid_context;
}

#ifndef FAKE_CUDA_OLDER
Result cuMemGetHandleForAddressRange(void* handle, abi::DevicePointer address, std::size_t size,
                                     int type, unsigned long long flags) {
    const Call call("cuMemGetHandleForAddressRange");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (type != abi::dma_buf_fd || flags > abi::mapping_type_pcie) {
        return abi::invalid_value;
    }
    const Result allowed = check_range(*call.operator->(), address, size);
    if (allowed != abi::success) {
        return allowed;
    }
    const Allocation* found = call->holder(address, nullptr);
    if (found == nullptr) {
        found = &call->allocations.upper_bound(address)->second;
    }
    if (!call.reaches(*found)) {
        return abi::invalid_context;
    }
    const int supported = found->type == abi::MemoryType::host ? 146 : 124;
    if (call.device(found->device).attributes[supported] <= 0) {
        return abi::not_supported;
    }
    if (flags == abi::mapping_type_pcie && call->pcie != abi::success) {
        return call->pcie;
    }
    if (call->no_descriptor) {
        return abi::success;
    }
    const int fd = call->memory.share(address, size - call->shortfall);
    if (fd < 0) {
        return abi::out_of_memory;
    }
    if (call->inheritable) {
        ::fcntl(fd, F_SETFD, 0);
    }
    put(handle, fd);
    return abi::success;
}

Result cuFlushGPUDirectRDMAWrites(int target, int scope) {
    const Call call("cuFlushGPUDirectRDMAWrites");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (contexts().empty() || target != abi::flush_target_current_context) {
        return abi::invalid_context;
    }
    call->flushed_scope = scope;
    call->flushed_context = contexts().back();
    return abi::success;
}
#endif

Result cuMemAlloc_v2(abi::DevicePointer* address, std::size_t size) {
    const Call call("cuMemAlloc_v2");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (contexts().empty()) {
        return abi::invalid_context;
    }
    if (size == 0) {
        return abi::invalid_value;
    }
    Allocation allocation{.size = size};
    allocation.context = contexts().back();
    allocation.device = allocation.context->device;
    *address = call->allocate(allocation, false);
    return *address != 0 ? abi::success : abi::out_of_memory;
}

Result cuMemFree_v2(abi::DevicePointer address) {
    const Call call("cuMemFree_v2");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    const Allocation* const found = call->holder(address, nullptr);
    if (found != nullptr && !call.reaches(*found)) {
        return abi::invalid_context;
    }
    return call->free(address) ? abi::success : abi::invalid_value;
}

Result cuMemcpyHtoD_v2(abi::DevicePointer to, const void* from, std::size_t size) {
    const Call call("cuMemcpyHtoD_v2");
    const Result allowed = check_copy(call, to, size);
    if (allowed == abi::success) {
        std::memcpy(call->memory.bytes(to), from, size);
    }
    return allowed;
}

Result cuMemcpyDtoH_v2(void* to, abi::DevicePointer from, std::size_t size) {
    const Call call("cuMemcpyDtoH_v2");
    const Result allowed = check_copy(call, from, size);
    if (allowed == abi::success) {
        std::memcpy(to, call->memory.bytes(from), size);
    }
    return allowed;
}
