// SPDX-License-Identifier: BSD-3-Clause
// Functions of libcuda.so.1 that rdmabuf calls.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "cuda.hpp"

using namespace fake_cuda;
using fake_driver::cpu_page_size;

namespace {

/// CU_DEVICE_ATTRIBUTE values of a current GPU.
std::map<int, int> usual_attributes() {
    const auto number = [](abi::DeviceAttribute attribute) { return static_cast<int>(attribute); };
    constexpr int virtual_memory_rdma = 110; // which only `rdmabuf doctor` queries
    return {{number(abi::DeviceAttribute::integrated), 0},
            {virtual_memory_rdma, 1},
            {number(abi::DeviceAttribute::gpu_direct_rdma_supported), 1},
            {number(abi::DeviceAttribute::gpu_direct_rdma_flush_writes_options), 1},
            {number(abi::DeviceAttribute::gpu_direct_rdma_writes_ordering), 0},
            {number(abi::DeviceAttribute::dma_buf_supported), 1},
            {number(abi::DeviceAttribute::host_alloc_dma_buf_supported), 0}};
}

/// Sets device attributes from FAKE_CUDA_ATTRIBUTES="124=0,18=1".
std::map<int, int> attributes() {
    std::map<int, int> all = usual_attributes();
    const char* const wanted = std::getenv("FAKE_CUDA_ATTRIBUTES");
    std::istringstream text(wanted != nullptr ? wanted : "");
    int attribute = 0;
    int value = 0;
    char separator = 0;
    while (text >> attribute >> separator >> value) {
        all[attribute] = value;
        text >> separator;
    }
    return all;
}

template <class Value>
Result put(void* data, Value value) {
    std::memcpy(data, &value, sizeof(value));
    return abi::success;
}

/// Returns the value of one attribute; zeroes for memory that is not CUDA's.
Result describe(const Machine& machine, void* data, abi::PointerAttribute attribute,
                const Allocation* found) {
    static const Allocation nothing{};
    const Allocation& allocation = found != nullptr ? *found : nothing;
    const bool without_device = allocation.kind == Kind::host_without_device;
    const bool host = allocation.kind == Kind::host || without_device;
    if (machine.forgotten_attributes.contains(static_cast<int>(attribute))) {
        return abi::invalid_value;
    }
    switch (attribute) {
        case abi::PointerAttribute::context:
            return put(data, allocation.context);
        case abi::PointerAttribute::memory_type:
            return put(data, found == nullptr ? abi::MemoryType::none
                             : host           ? abi::MemoryType::host
                                              : abi::MemoryType::device);
        case abi::PointerAttribute::sync_memops:
            return put(data, allocation.flags);
        case abi::PointerAttribute::buffer_id:
            return put(data, allocation.id);
        case abi::PointerAttribute::is_managed:
            return put(data, unsigned{allocation.kind == Kind::managed});
        case abi::PointerAttribute::device_ordinal:
            // CU_DEVICE_CPU and CU_DEVICE_INVALID, which cuDeviceGet() refuses.
            return put(data, found == nullptr ? -2
                             : without_device ? -1
                                              : static_cast<int>(allocation.device));
        case abi::PointerAttribute::range_start:
            // For packed allocations too the driver reports the block.
            return put(data, allocation.block);
        case abi::PointerAttribute::range_size:
            return put(data, found != nullptr && machine.setting(Setting::no_extent) == 0
                                 ? machine.blocks.at(allocation.block).size
                                 : 0);
        case abi::PointerAttribute::is_gpu_direct_rdma_capable:
            // Not set for memory of pools, which driver 580 exports all the same.
            return put(data, unsigned{allocation.exportable && allocation.kind != Kind::pooled});
        case abi::PointerAttribute::mempool_handle:
            return put(data, std::uintptr_t{allocation.kind == Kind::pooled});
        case abi::PointerAttribute::mapping_base_address:
            return put(data, allocation.start);
        case abi::PointerAttribute::mapping_size:
            return put(data, machine.setting(Setting::no_extent) != 0 ? 0 : allocation.size);
    }
    return abi::invalid_value;
}

/// Returns the allocation that a range of whole pages may be exported as: one allocation, or
/// mappings of one device without a gap between them. Returns null if the range must not be
/// exported.
const Allocation* exported(Machine& machine, std::uint64_t start, std::size_t size) {
    const std::size_t page = cpu_page_size();
    if (size == 0 || start % page != 0 || size % page != 0) {
        return nullptr;
    }
    const Allocation* first = machine.holder(start);
    if (first == nullptr && machine.setting(Setting::packed) != 0) {
        // The page begins before the allocation.
        const auto next = machine.allocations.upper_bound(start);
        if (next != machine.allocations.end() && next->first < start + size) {
            first = &next->second;
        }
    }
    if (first == nullptr || first->kind == Kind::managed ||
        (first->kind == Kind::pooled && !first->exportable)) {
        return nullptr;
    }
    if (first->kind != Kind::mapped) {
        return start + size <= first->block + machine.blocks.at(first->block).size ? first
                                                                                   : nullptr;
    }
    for (std::uint64_t at = start; at < start + size;) {
        const Allocation* const mapping = machine.holder(at);
        if (mapping == nullptr || mapping->device != first->device || !mapping->exportable) {
            return nullptr;
        }
        at = mapping->start + mapping->size;
    }
    return first;
}

/// Returns whether the current context may copy in the legacy stream. While another stream is
/// captured, such a copy fails and ends the capture.
Result check_legacy_copy(Machine& machine, abi::DevicePointer address, std::size_t size) {
    return machine.setting(Setting::capturing) != 0 ? abi::stream_capture_implicit
                                                    : check_copy(machine, address, size);
}

bool may_call_during_capture(const Machine& machine) {
    return machine.setting(Setting::capturing) == 0 ||
           fake_cuda::capture_mode() == abi::capture_mode_relaxed;
}

/// Calls @p body if the device exists.
template <class Body>
Result device_call(const char* function, abi::Device device, Body&& body) {
    return call(function, [&](Machine& machine) -> Result {
        return machine.has_device(device) ? body(machine, static_cast<unsigned>(device))
                                          : abi::invalid_device;
    });
}

} // namespace

const fake_driver::Vendor& fake_driver::vendor() {
    static const Vendor cuda{.uninitialised = abi::not_initialized, .attributes = attributes()};
    return cuda;
}

namespace fake_cuda {

std::vector<Context*>& contexts() {
    thread_local std::vector<Context*> stack;
    return stack;
}

int& capture_mode() {
    thread_local int mode = 0;
    return mode;
}

Result allocate(Machine& machine, Kind kind, std::size_t size, abi::DevicePointer* address) {
    if (contexts().empty()) {
        return abi::invalid_context;
    }
    if (!may_call_during_capture(machine)) {
        return abi::stream_capture_unsupported;
    }
    if (size == 0) {
        return abi::invalid_value;
    }
    const Context* const current = contexts().back();
    *address = machine.allocate({.size = size,
                                 .kind = kind,
                                 .device = current->device,
                                 .context = kind == Kind::pooled ? nullptr : current,
                                 .counted = true});
    return *address != 0 ? abi::success : abi::out_of_memory;
}

bool reaches(const Allocation& allocation) {
    return !contexts().empty() &&
           (allocation.context != nullptr ? contexts().back() == allocation.context
                                          : contexts().back()->device == allocation.device);
}

Result check_copy(Machine& machine, abi::DevicePointer address, std::size_t size) {
    // Mappings that follow one another are copied together.
    const std::uint64_t end = address + size;
    while (address < end) {
        const Allocation* const found = machine.holder(address);
        if (found == nullptr || (end > found->start + found->size && found->kind != Kind::mapped)) {
            return abi::invalid_value;
        }
        if (!reaches(*found)) {
            return abi::invalid_context;
        }
        address = found->start + found->size;
    }
    return abi::success;
}

} // namespace fake_cuda

Result cuGetErrorName(Result result, const char** name) {
    static const std::map<Result, const char*> names{
        {abi::invalid_value, "CUDA_ERROR_INVALID_VALUE"},
        {abi::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
        {abi::not_initialized, "CUDA_ERROR_NOT_INITIALIZED"},
        {abi::deinitialized, "CUDA_ERROR_DEINITIALIZED"},
        {abi::stub_library, "CUDA_ERROR_STUB_LIBRARY"},
        {abi::no_device, "CUDA_ERROR_NO_DEVICE"},
        {abi::invalid_device, "CUDA_ERROR_INVALID_DEVICE"},
        {abi::invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
        {abi::context_is_destroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {abi::not_supported, "CUDA_ERROR_NOT_SUPPORTED"},
    };
    const auto found = names.find(result);
    *name = found != names.end() ? found->second : nullptr;
    return found != names.end() ? abi::success : abi::invalid_value;
}

Result cuInit(unsigned flags) {
    return fake_driver::call<Result>(__func__, Needs::nothing, [&](Machine& machine) -> Result {
        if (flags != 0) {
            return abi::invalid_value;
        }
        if (machine.initialised_by_parent()) {
            return abi::not_initialized;
        }
        if (machine.devices.empty()) {
            return abi::no_device;
        }
        if (!machine.initialised()) {
            machine.initialise();
        }
        return abi::success;
    });
}

Result cuDriverGetVersion(int* version) {
    *version = 13000;
    return abi::success;
}

Result cuDeviceGetCount(int* count) {
    return call(__func__, [&](Machine& machine) -> Result {
        *count = static_cast<int>(machine.devices.size());
        return abi::success;
    });
}

Result cuDeviceGet(abi::Device* device, int ordinal) {
    return device_call(__func__, ordinal, [&](Machine&, unsigned) -> Result {
        *device = ordinal;
        return abi::success;
    });
}

Result cuDeviceGetAttribute(int* value, abi::DeviceAttribute attribute, abi::Device device) {
    return device_call(__func__, device, [&](Machine& machine, unsigned index) -> Result {
        const auto found = machine.attribute(index, static_cast<int>(attribute));
        if (!found) {
            return abi::invalid_value;
        }
        *value = *found;
        return abi::success;
    });
}

Result cuDeviceGetPCIBusId(char* text, int length, abi::Device device) {
    return device_call(__func__, device, [&](Machine&, unsigned index) -> Result {
        std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", 0x3b + index);
        return abi::success;
    });
}

Result cuDevicePrimaryCtxRetain(abi::Context* context, abi::Device device) {
    return device_call(__func__, device, [&](Machine& machine, unsigned index) -> Result {
        Context& primary = machine.devices[index].primary;
        ++primary.references;
        if (!primary.alive) {
            primary.alive = true;
            primary.id = Context::next_id();
        }
        *context = static_cast<abi::Context>(&primary);
        return abi::success;
    });
}

Result cuDevicePrimaryCtxRelease_v2(abi::Device device) {
    return device_call(__func__, device, [&](Machine& machine, unsigned index) -> Result {
        Context& primary = machine.devices[index].primary;
        if (primary.references == 0) {
            return abi::invalid_context;
        }
        primary.alive = --primary.references != 0;
        return abi::success;
    });
}

Result cuDevicePrimaryCtxGetState(abi::Device device, unsigned* flags, int* active) {
    return device_call(__func__, device, [&](Machine& machine, unsigned index) -> Result {
        *flags = 0;
        *active = machine.devices[index].primary.alive ? 1 : 0;
        return abi::success;
    });
}

Result cuCtxGetCurrent(abi::Context* context) {
    return call(__func__, [&](Machine&) -> Result {
        *context = contexts().empty() ? nullptr : static_cast<abi::Context>(contexts().back());
        return abi::success;
    });
}

Result cuCtxPushCurrent_v2(abi::Context context) {
    return call(__func__, [&](Machine&) -> Result {
        if (context == nullptr || !context->alive) {
            return abi::invalid_context;
        }
        contexts().push_back(context);
        return abi::success;
    });
}

Result cuCtxPopCurrent_v2(abi::Context* context) {
    if (contexts().empty()) {
        return abi::invalid_context;
    }
    // A planned failure also removes the context, so that the next test begins without one.
    *context = static_cast<abi::Context>(contexts().back());
    contexts().pop_back();
    return call(__func__, [](Machine&) { return abi::success; });
}

Result cuPointerGetAttribute(void* data, abi::PointerAttribute attribute,
                             abi::DevicePointer address) {
    return call(__func__, [&](Machine& machine) -> Result {
        const Allocation* const found = machine.holder(address);
        return found != nullptr ? describe(machine, data, attribute, found) : abi::invalid_value;
    });
}

Result cuPointerGetAttributes(unsigned count, abi::PointerAttribute* attributes, void** data,
                              abi::DevicePointer address) {
    return call(__func__, [&](Machine& machine) -> Result {
        Result described = abi::success;
        for (unsigned i = 0; i < count && described == abi::success; ++i) {
            described = describe(machine, data[i], attributes[i], machine.holder(address));
        }
        return described;
    });
}

Result cuPointerSetAttribute(const void* value, abi::PointerAttribute attribute,
                             abi::DevicePointer address) {
    return call(__func__, [&](Machine& machine) -> Result {
        Allocation* const found = machine.holder(address);
        if (found == nullptr || attribute != abi::PointerAttribute::sync_memops ||
            found->kind == Kind::mapped) {
            return abi::invalid_value;
        }
        if (!reaches(*found)) {
            return abi::invalid_context;
        }
        std::memcpy(&found->flags, value, sizeof(found->flags));
        return abi::success;
    });
}

Result cuMemGetAddressRange_v2(abi::DevicePointer* base, std::size_t* size,
                               abi::DevicePointer address) {
    return call(__func__, [&](Machine& machine) -> Result {
        if (contexts().empty()) {
            return abi::invalid_context;
        }
        const Allocation* const found = machine.holder(address);
        if (found == nullptr || found->kind == Kind::managed || found->kind == Kind::host ||
            found->kind == Kind::host_without_device || machine.setting(Setting::no_extent) != 0) {
            return abi::not_found;
        }
        *base = found->start;
        *size = found->size;
        // A mapping of another device may follow, so any context may query mappings.
        return found->kind == Kind::mapped || reaches(*found) ? abi::success : abi::invalid_context;
    });
}

Result cuMemGetHandleForAddressRange(void* handle, abi::DevicePointer address, std::size_t size,
                                     int type, unsigned long long flags) {
    return call(__func__, [&](Machine& machine) -> Result {
        const Allocation* const found = exported(machine, address, size);
        if (type != abi::dma_buf_fd || flags > abi::mapping_type_pcie || found == nullptr) {
            return abi::invalid_value;
        }
        if (!reaches(*found)) {
            return abi::invalid_context;
        }
        const auto supported = found->kind == Kind::host
                                   ? abi::DeviceAttribute::host_alloc_dma_buf_supported
                                   : abi::DeviceAttribute::dma_buf_supported;
        if (machine.attribute(found->device, static_cast<int>(supported)).value_or(0) == 0) {
            return abi::not_supported;
        }
        const auto pcie = static_cast<Result>(machine.setting(Setting::pcie_result));
        if (flags == abi::mapping_type_pcie && pcie != abi::success) {
            return pcie;
        }
        int fd = -1;
        if (!machine.share(address, size, &fd)) {
            return abi::operating_system;
        }
        return fd >= 0 ? put(handle, fd) : abi::success;
    });
}

Result cuFlushGPUDirectRDMAWrites(int target, int scope) {
    return call(__func__, [&](Machine& machine) -> Result {
        if (contexts().empty() || target != abi::flush_target_current_context) {
            return abi::invalid_context;
        }
        machine.recorded["cuFlushGPUDirectRDMAWrites"] = static_cast<std::uint64_t>(scope);
        machine.recorded["cuFlushGPUDirectRDMAWrites(context)"] =
            fake_driver::address_of(contexts().back());
        return abi::success;
    });
}

Result cuMemAlloc_v2(abi::DevicePointer* address, std::size_t size) {
    return call(__func__,
                [&](Machine& machine) { return allocate(machine, Kind::device, size, address); });
}

Result cuMemFree_v2(abi::DevicePointer address) {
    const Result allowed = call(__func__, [&](Machine& machine) -> Result {
        const Allocation* const found = machine.holder(address);
        if (!may_call_during_capture(machine)) {
            return abi::stream_capture_unsupported;
        }
        return found != nullptr && !reaches(*found) ? abi::invalid_context : abi::success;
    });
    return allowed != abi::success || Machine::get().free(address) ? allowed : abi::invalid_value;
}

Result cuThreadExchangeStreamCaptureMode(int* mode) {
    return call(__func__, [&](Machine&) -> Result {
        std::swap(*mode, capture_mode());
        return abi::success;
    });
}

Result cuMemcpyHtoD_v2(abi::DevicePointer to, const void* from, std::size_t size) {
    return call(__func__, [&](Machine& machine) {
        const Result allowed = check_legacy_copy(machine, to, size);
        if (allowed == abi::success) {
            std::memcpy(machine.memory.bytes(to), from, size);
        }
        return allowed;
    });
}

Result cuMemcpyDtoH_v2(void* to, abi::DevicePointer from, std::size_t size) {
    return call(__func__, [&](Machine& machine) {
        const Result allowed = check_legacy_copy(machine, from, size);
        if (allowed == abi::success) {
            std::memcpy(to, machine.memory.bytes(from), size);
        }
        return allowed;
    });
}
