// SPDX-License-Identifier: BSD-3-Clause
// Functions of libcuda.so.1 that softverbs and the program of tests/gpu call, and rdmabuf does not.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "cuda.hpp"

namespace program = cuda_program;
using namespace fake_cuda;
using program::DevicePointer;
using softverbs::cuda::Stream;

struct softverbs::cuda::OpaqueStream {
    fake_driver::Context* context;
    unsigned long long context_id;
};

namespace {

constexpr std::size_t granularity = std::size_t{2} << 20U;

/// Properties of the memory of cuMemCreate(), by handle.
std::map<program::AllocationHandle, program::AllocationProperties>& created() {
    static std::map<program::AllocationHandle, program::AllocationProperties> handles;
    return handles;
}

/// Calls @p body if the context of a stream is current. A stream ends with its context: NVIDIA's
/// driver then reads freed memory, and the program crashes (seen with 580.159.04).
template <class Body>
Result stream_call(const char* function, Stream stream, Body&& body) {
    return call(function, [&](Machine& machine) -> Result {
        if (stream == nullptr || contexts().empty()) {
            return abi::invalid_context;
        }
        if (!stream->context->alive || stream->context->id != stream->context_id) {
            std::fprintf(stderr, "fake libcuda.so.1: %s: the context of the stream was destroyed\n",
                         function);
            std::abort();
        }
        return contexts().back() == stream->context ? body(machine) : abi::invalid_context;
    });
}

} // namespace

Result cuCtxGetId(softverbs::cuda::Context context, unsigned long long* id) {
    return call(__func__, [&](Machine&) -> Result {
        // softverbs asks for the current context only.
        if (context != nullptr || contexts().empty() || !contexts().back()->alive) {
            return abi::invalid_context;
        }
        *id = contexts().back()->id;
        return abi::success;
    });
}

Result cuStreamCreate(Stream* stream, unsigned flags) {
    return call(__func__, [&](Machine&) -> Result {
        // A kernel of the program could block a stream that waits for kernels.
        if (flags != softverbs::cuda::stream_non_blocking || contexts().empty()) {
            return abi::invalid_value;
        }
        static std::vector<std::unique_ptr<softverbs::cuda::OpaqueStream>> streams;
        streams.push_back(std::make_unique<softverbs::cuda::OpaqueStream>());
        *streams.back() = {.context = contexts().back(), .context_id = contexts().back()->id};
        *stream = streams.back().get();
        return abi::success;
    });
}

Result cuStreamDestroy_v2(rdmabuf::detail::cuda::Stream stream) {
    return call(__func__, [&](Machine&) -> Result {
        return stream != nullptr ? abi::success : abi::invalid_value;
    });
}

Result cuStreamSynchronize(Stream stream) {
    return stream_call(__func__, stream, [](Machine&) { return abi::success; });
}

Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t size, Stream stream) {
    return stream_call(__func__, stream, [&](Machine& machine) {
        const Result allowed = check_copy(machine, to, size);
        if (allowed == abi::success) {
            std::copy_n(static_cast<const std::byte*>(from), size, machine.memory.bytes(to));
        }
        return allowed;
    });
}

Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t size, Stream stream) {
    return stream_call(__func__, stream, [&](Machine& machine) {
        const Result allowed = check_copy(machine, from, size);
        if (allowed == abi::success) {
            std::copy_n(machine.memory.bytes(from), size, static_cast<std::byte*>(to));
        }
        return allowed;
    });
}

Result cuMemAllocManaged(DevicePointer* address, std::size_t size, unsigned flags) {
    return call(__func__, [&](Machine& machine) -> Result {
        return flags == program::attach_global ? allocate(machine, Kind::managed, size, address)
                                               : abi::invalid_value;
    });
}

Result cuMemAllocAsync(DevicePointer* address, std::size_t size, program::Stream /*stream*/) {
    return call(__func__,
                [&](Machine& machine) { return allocate(machine, Kind::pooled, size, address); });
}

Result cuMemAllocHost_v2(void** memory, std::size_t size) {
    return call(__func__, [&](Machine& machine) {
        DevicePointer address = 0;
        const Result result = allocate(machine, Kind::host, size, &address);
        *memory = fake_driver::pointer_to(address);
        return result;
    });
}

Result cuMemFreeHost(void* memory) {
    return cuMemFree_v2(fake_driver::address_of(memory));
}

Result cuMemGetAllocationGranularity(std::size_t* size, const program::AllocationProperties*,
                                     int /*option*/) {
    *size = granularity;
    return call(__func__, [](Machine&) { return abi::success; });
}

Result cuMemAddressReserve(DevicePointer* address, std::size_t size, std::size_t /*alignment*/,
                           DevicePointer /*wanted*/, unsigned long long /*flags*/) {
    return call(__func__, [&](Machine& machine) -> Result {
        *address = machine.reserve(size);
        return *address != 0 ? abi::success : abi::out_of_memory;
    });
}

Result cuMemAddressFree(DevicePointer address, std::size_t /*size*/) {
    return call(__func__, [&](Machine& machine) -> Result {
        if (machine.blocks.erase(address) == 0) {
            return abi::invalid_value;
        }
        machine.memory.give_back(address);
        return abi::success;
    });
}

Result cuMemCreate(program::AllocationHandle* handle, std::size_t size,
                   const program::AllocationProperties* properties, unsigned long long /*flags*/) {
    return call(__func__, [&](Machine& machine) -> Result {
        const program::Location& location = properties->location;
        const bool exists = location.type == program::location_device
                                ? machine.has_device(location.id)
                                : location.type == program::location_host_numa && location.id == 0;
        if (size % granularity != 0 || properties->type != program::allocation_pinned || !exists) {
            return abi::invalid_value;
        }
        static program::AllocationHandle last = 0;
        *handle = ++last;
        created()[*handle] = *properties;
        return abi::success;
    });
}

Result cuMemRelease(program::AllocationHandle handle) {
    return call(__func__, [&](Machine&) -> Result {
        return created().erase(handle) == 1 ? abi::success : abi::invalid_value;
    });
}

Result cuMemMap(DevicePointer address, std::size_t size, std::size_t offset,
                program::AllocationHandle handle, unsigned long long /*flags*/) {
    return call(__func__, [&](Machine& machine) -> Result {
        const auto found = created().find(handle);
        const auto after = machine.blocks.upper_bound(address);
        if (found == created().end() || offset != 0 || after == machine.blocks.begin() ||
            !std::prev(after)->second.reserved) {
            return abi::invalid_value;
        }
        const bool on_device = found->second.location.type == program::location_device;
        machine.place(address, {.size = size,
                                .kind = on_device ? Kind::mapped : Kind::host_without_device,
                                .device = static_cast<unsigned>(found->second.location.id),
                                .exportable = found->second.gpu_direct_rdma_capable != 0});
        return abi::success;
    });
}

Result cuMemUnmap(DevicePointer address, std::size_t size) {
    return call(__func__, [&](Machine& machine) -> Result {
        std::erase_if(machine.allocations, [=](const auto& entry) {
            return entry.first >= address && entry.first < address + size;
        });
        return abi::success;
    });
}

Result cuMemSetAccess(DevicePointer /*address*/, std::size_t /*size*/,
                      const program::AccessDescription* access, std::size_t count) {
    return call(__func__, [&](Machine&) -> Result {
        return count == 1 && access->flags == program::access_read_write ? abi::success
                                                                         : abi::invalid_value;
    });
}
