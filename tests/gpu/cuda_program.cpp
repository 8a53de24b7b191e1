// SPDX-License-Identifier: BSD-3-Clause
#include "cuda_program.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace cuda_program {

namespace abi = rdmabuf::detail::cuda;

namespace {

constexpr Location device{.type = location_device, .id = 0};

AllocationProperties properties_of(Program::Place place) {
    const bool on_device = place == Program::Place::device;
    return {.type = allocation_pinned,
            .requested_handle_types = 0,
            .location = on_device ? device : Location{.type = location_host_numa, .id = 0},
            .win32_handle_meta_data = nullptr,
            .compression_type = 0,
            .gpu_direct_rdma_capable = static_cast<unsigned char>(on_device ? 1 : 0),
            .usage = 0,
            .reserved = {}};
}

void* pointer_of(DevicePointer address) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

} // namespace

Program::Program() : library_(::dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library_ == nullptr) {
        throw std::runtime_error(::dlerror());
    }
    check(function<abi::Init>("cuInit")(0), "cuInit");
    check(function<abi::DevicePrimaryContextRetain>("cuDevicePrimaryCtxRetain")(&context_, 0),
          "cuDevicePrimaryCtxRetain");
    check(function<abi::ContextPushCurrent>("cuCtxPushCurrent_v2")(context_), "cuCtxPushCurrent");
}

Program::~Program() {
    abi::Context popped = nullptr;
    function<abi::ContextPopCurrent>("cuCtxPopCurrent_v2")(&popped);
    function<abi::DevicePrimaryContextRelease>("cuDevicePrimaryCtxRelease_v2")(0);
}

template <class Function>
Function* Program::function(const char* name) const {
    void* const found = ::dlsym(library_, name);
    if (found == nullptr) {
        throw std::runtime_error(std::string("the driver has no ") + name);
    }
    return reinterpret_cast<Function*>(found);
}

void Program::check(Result result, const char* name) const {
    if (result != abi::success) {
        const char* text = nullptr;
        function<abi::GetErrorName>("cuGetErrorName")(result, &text);
        throw std::runtime_error(std::string(name) + ": " +
                                 (text != nullptr ? text : std::to_string(result)));
    }
}

Program::Memory Program::owned(DevicePointer address) const {
    return {pointer_of(address), [free = function<abi::MemFree>("cuMemFree_v2")](void* memory) {
                free(reinterpret_cast<DevicePointer>(memory));
            }};
}

Program::Memory Program::allocate(std::size_t size) const {
    DevicePointer address = 0;
    check(function<abi::MemAlloc>("cuMemAlloc_v2")(&address, size), "cuMemAlloc");
    return owned(address);
}

Program::Memory Program::allocate_managed(std::size_t size) const {
    DevicePointer address = 0;
    check(function<MemAllocManaged>("cuMemAllocManaged")(&address, size, attach_global),
          "cuMemAllocManaged");
    return owned(address);
}

Program::Memory Program::allocate_of_pool(std::size_t size) const {
    DevicePointer address = 0;
    check(function<MemAllocAsync>("cuMemAllocAsync")(&address, size, nullptr), "cuMemAllocAsync");
    return owned(address);
}

Program::Memory Program::allocate_host(std::size_t size) const {
    void* memory = nullptr;
    check(function<MemAllocHost>("cuMemAllocHost_v2")(&memory, size), "cuMemAllocHost");
    return {memory, function<MemFreeHost>("cuMemFreeHost")};
}

std::size_t Program::granularity() const {
    std::size_t granularity = 0;
    const AllocationProperties properties = properties_of(Place::device);
    check(function<MemGetAllocationGranularity>("cuMemGetAllocationGranularity")(
              &granularity, &properties, granularity_minimum),
          "cuMemGetAllocationGranularity");
    return granularity;
}

void Program::map_at(DevicePointer address, Place place, std::size_t size) const {
    const AllocationProperties properties = properties_of(place);
    AllocationHandle handle = 0;
    check(function<MemCreate>("cuMemCreate")(&handle, size, &properties, 0), "cuMemCreate");
    const Result mapped = function<MemMap>("cuMemMap")(address, size, 0, handle, 0);
    // The mapping keeps the memory.
    check(function<MemRelease>("cuMemRelease")(handle), "cuMemRelease");
    check(mapped, "cuMemMap");
    const AccessDescription access{.location = device, .flags = access_read_write};
    check(function<MemSetAccess>("cuMemSetAccess")(address, size, &access, 1), "cuMemSetAccess");
}

Program::Memory Program::map(const std::vector<Place>& places, std::size_t size) const {
    const std::size_t whole = places.size() * size;
    DevicePointer address = 0;
    check(function<MemAddressReserve>("cuMemAddressReserve")(&address, whole, 0, 0, 0),
          "cuMemAddressReserve");
    Memory range(pointer_of(address),
                 [whole, unmap = function<MemUnmap>("cuMemUnmap"),
                  free = function<MemAddressFree>("cuMemAddressFree")](void* memory) {
                     unmap(reinterpret_cast<DevicePointer>(memory), whole);
                     free(reinterpret_cast<DevicePointer>(memory), whole);
                 });
    for (std::size_t i = 0; i < places.size(); ++i) {
        map_at(address + i * size, places[i], size);
    }
    return range;
}

void Program::map_again(const Memory& range, std::size_t size) const {
    const std::uintptr_t address = address_of(range);
    check(function<MemUnmap>("cuMemUnmap")(address, size), "cuMemUnmap");
    map_at(address, Place::device, size);
}

void Program::synchronize() const {
    check(function<StreamSynchronize>("cuStreamSynchronize")(nullptr), "cuStreamSynchronize");
}

void Program::copy_in(std::uintptr_t to, const std::vector<std::byte>& from) const {
    check(function<MemcpyHtoD>("cuMemcpyHtoD_v2")(to, from.data(), from.size()), "cuMemcpyHtoD");
}

std::vector<std::byte> Program::copy_out(std::uintptr_t from, std::size_t size) const {
    std::vector<std::byte> bytes(size);
    check(function<MemcpyDtoH>("cuMemcpyDtoH_v2")(bytes.data(), from, size), "cuMemcpyDtoH");
    return bytes;
}

} // namespace cuda_program
