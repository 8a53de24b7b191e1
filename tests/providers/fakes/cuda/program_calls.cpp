// SPDX-License-Identifier: BSD-3-Clause
// The functions of libcuda.so.1 that the program of tests/gpu calls, besides those that rdmabuf
// does.
#include <iterator>
#include <map>

#include "call.hpp"
#include "tests/gpu/cuda_program_abi.hpp"

namespace program = cuda_program;
using fake_cuda::Allocation;
using fake_cuda::Call;
using fake_cuda::contexts;
using program::DevicePointer;
using program::Result;

extern "C" {
extern program::MemGetAllocationGranularity cuMemGetAllocationGranularity;
extern program::MemAddressReserve cuMemAddressReserve;
extern program::MemAddressFree cuMemAddressFree;
extern program::MemCreate cuMemCreate;
extern program::MemRelease cuMemRelease;
extern program::MemMap cuMemMap;
extern program::MemUnmap cuMemUnmap;
extern program::MemSetAccess cuMemSetAccess;
extern program::MemAllocManaged cuMemAllocManaged;
extern program::MemAllocAsync cuMemAllocAsync;
extern program::MemAllocHost cuMemAllocHost_v2;
extern program::MemFreeHost cuMemFreeHost;
}

namespace {

constexpr std::size_t granularity = std::size_t{2} << 20U;

/// What cuMemCreate() made, until it is mapped.
std::map<program::AllocationHandle, program::AllocationProperties>& created() {
    static std::map<program::AllocationHandle, program::AllocationProperties> handles;
    return handles;
}

/// What cuMemAddressReserve() gave out: where each range begins, and how long it is.
std::map<DevicePointer, std::size_t>& reserved() {
    static std::map<DevicePointer, std::size_t> ranges;
    return ranges;
}

Result allocate(const Call& call, Allocation allocation, bool visible, DevicePointer* address) {
    if (call.refused() != fake_cuda::abi::success) {
        return call.refused();
    }
    if (contexts().empty()) {
        return fake_cuda::abi::invalid_context;
    }
    allocation.context = allocation.pooled ? nullptr : contexts().back();
    allocation.device = contexts().back()->device;
    *address = call->allocate(allocation, visible);
    return *address != 0 ? fake_cuda::abi::success : fake_cuda::abi::out_of_memory;
}

} // namespace

Result cuMemAllocManaged(DevicePointer* address, std::size_t size, unsigned flags) {
    const Call call("cuMemAllocManaged");
    if (flags != program::attach_global) {
        return fake_cuda::abi::invalid_value;
    }
    return allocate(call, {.size = size, .managed = true}, true, address);
}

Result cuMemAllocAsync(DevicePointer* address, std::size_t size, program::Stream /*stream*/) {
    return allocate(Call("cuMemAllocAsync"), {.size = size, .pooled = true}, false, address);
}

Result cuMemAllocHost_v2(void** memory, std::size_t size) {
    DevicePointer address = 0;
    const Result result =
        allocate(Call("cuMemAllocHost_v2"),
                 {.size = size, .type = fake_cuda::abi::MemoryType::host}, true, &address);
    *memory = reinterpret_cast<void*>(address);
    return result;
}

Result cuMemFreeHost(void* memory) {
    const Call call("cuMemFreeHost");
    return call->free(reinterpret_cast<DevicePointer>(memory)) ? fake_cuda::abi::success
                                                               : fake_cuda::abi::invalid_value;
}

Result cuMemGetAllocationGranularity(std::size_t* size, const program::AllocationProperties*,
                                     int /*option*/) {
    const Call call("cuMemGetAllocationGranularity");
    *size = granularity;
    return call.refused();
}

Result cuMemAddressReserve(DevicePointer* address, std::size_t size, std::size_t /*alignment*/,
                           DevicePointer /*wanted*/, unsigned long long /*flags*/) {
    const Call call("cuMemAddressReserve");
    if (call.refused() != fake_cuda::abi::success) {
        return call.refused();
    }
    *address = call->memory.take(size, false);
    if (*address == 0) {
        return fake_cuda::abi::out_of_memory;
    }
    reserved()[*address] = size;
    return fake_cuda::abi::success;
}

Result cuMemAddressFree(DevicePointer address, std::size_t /*size*/) {
    const Call call("cuMemAddressFree");
    if (reserved().erase(address) == 0) {
        return fake_cuda::abi::invalid_value;
    }
    call->memory.give_back(address);
    return call.refused();
}

Result cuMemCreate(program::AllocationHandle* handle, std::size_t size,
                   const program::AllocationProperties* properties, unsigned long long /*flags*/) {
    const Call call("cuMemCreate");
    if (call.refused() != fake_cuda::abi::success) {
        return call.refused();
    }
    if (size % granularity != 0 || properties->type != program::allocation_pinned ||
        properties->location.type != program::location_device ||
        !call.has_device(properties->location.id)) {
        return fake_cuda::abi::invalid_value;
    }
    static program::AllocationHandle last = 0;
    *handle = ++last;
    created()[*handle] = *properties;
    return fake_cuda::abi::success;
}

Result cuMemRelease(program::AllocationHandle handle) {
    const Call call("cuMemRelease");
    return created().erase(handle) == 1 ? call.refused() : fake_cuda::abi::invalid_value;
}

Result cuMemMap(DevicePointer address, std::size_t size, std::size_t offset,
                program::AllocationHandle handle, unsigned long long /*flags*/) {
    const Call call("cuMemMap");
    const auto found = created().find(handle);
    const auto after = reserved().upper_bound(address);
    if (found == created().end() || offset != 0 || after == reserved().begin()) {
        return fake_cuda::abi::invalid_value;
    }
    const auto& [range, range_size] = *std::prev(after);
    const program::AllocationProperties& properties = found->second;
    Allocation mapping{.size = size, .block = range, .block_size = range_size};
    mapping.device = properties.location.id;
    mapping.capable = properties.gpu_direct_rdma_capable;
    mapping.id = ++call->last_id;
    call->allocations.emplace(address, mapping);
    return call.refused();
}

Result cuMemUnmap(DevicePointer address, std::size_t size) {
    const Call call("cuMemUnmap");
    std::erase_if(call->allocations, [=](const auto& entry) {
        return entry.first >= address && entry.first < address + size;
    });
    return call.refused();
}

Result cuMemSetAccess(DevicePointer /*address*/, std::size_t /*size*/,
                      const program::AccessDescription* access, std::size_t count) {
    const Call call("cuMemSetAccess");
    return count == 1 && access->flags == program::access_read_write
               ? call.refused()
               : fake_cuda::abi::invalid_value;
}
