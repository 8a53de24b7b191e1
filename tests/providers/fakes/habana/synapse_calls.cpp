// SPDX-License-Identifier: BSD-3-Clause
// The functions of libSynapse.so that rdmabuf calls.
#include <cstdlib>
#include <cstring>

#include "machine.hpp"

namespace abi = fake_habana::abi;
using abi::Status;
using fake_habana::Call;

// The definitions below have the types that rdmabuf calls them by, or they do not compile.
extern "C" {
extern abi::Initialize synInitialize;
extern abi::DeviceAcquire synDeviceAcquire;
extern abi::DeviceRelease synDeviceRelease;
extern abi::DeviceGetInfo synDeviceGetInfoV2;
extern abi::DeviceMalloc synDeviceMalloc;
extern abi::DeviceFree synDeviceFree;
extern abi::HostMalloc synHostMalloc;
extern abi::HostFree synHostFree;
extern abi::StreamCreate synStreamCreateGeneric;
extern abi::StreamDestroy synStreamDestroy;
extern abi::StreamSynchronize synStreamSynchronize;
extern abi::MemCopyAsync synMemCopyAsync;
}

namespace {

constexpr abi::DeviceId only_device = 7;

/// What a call on the acquired device is refused with.
Status check(const Call& call, abi::DeviceId device) {
    if (call.refused() != 0) {
        return call.refused();
    }
    return call->acquired < 0 || device != only_device ? abi::invalid_argument : abi::success;
}

} // namespace

Status synInitialize() {
    const Call call("synInitialize");
    if (call.refused() != 0) {
        return call.refused();
    }
    const bool before = call->initialised;
    call->initialised = true;
    return before ? abi::already_initialized : abi::success;
}

Status synDeviceAcquire(abi::DeviceId* device, const char* /*pci_bus_id*/) {
    const Call call("synDeviceAcquire");
    if (call.refused() != 0) {
        return call.refused();
    }
    if (!call->initialised) {
        return abi::uninitialized;
    }
    if (call->acquired >= 0) {
        return abi::device_already_acquired;
    }
    if (call->devices == 0) {
        return abi::no_device_found;
    }
    call->acquired = call->open_device(abi::DeviceName::gaudi2);
    call->pool = call->map(fake_habana::pool_size);
    *device = only_device;
    return call->acquired >= 0 && call->pool != 0 ? abi::success : abi::failed;
}

Status synDeviceRelease(abi::DeviceId device) {
    const Call call("synDeviceRelease");
    if (const Status refused = check(call, device); refused != abi::success) {
        return refused;
    }
    if (!call->buffers.empty() || !call->host_buffers.empty() || call->stream != nullptr) {
        return abi::failed;
    }
    call->close_device(call->acquired);
    call->acquired = -1;
    call->unmap(call->pool);
    call->pool = 0;
    return abi::success;
}

Status synDeviceGetInfoV2(abi::DeviceId device, abi::DeviceInfo* info) {
    const Call call("synDeviceGetInfoV2");
    if (const Status refused = check(call, device); refused != abi::success) {
        return refused;
    }
    *info = {};
    info->fd = static_cast<std::uint32_t>(call->acquired);
    info->dram_size = fake_habana::pool_size;
    info->global_hbm_base_address = call->pool;
    return abi::success;
}

Status synDeviceMalloc(abi::DeviceId device, std::uint64_t size, std::uint64_t /*wanted*/,
                       std::uint32_t /*flags*/, std::uint64_t* address) {
    const Call call("synDeviceMalloc");
    if (const Status refused = check(call, device); refused != abi::success) {
        return refused;
    }
    std::uint64_t start = call->pool;
    for (const auto& [taken, length] : call->buffers) {
        if (taken - start >= size) {
            break;
        }
        start = taken + length;
    }
    if (size > fake_habana::pool_size - (start - call->pool)) {
        return abi::out_of_device_memory;
    }
    call->buffers.emplace(start, size);
    *address = start;
    return abi::success;
}

Status synDeviceFree(abi::DeviceId device, std::uint64_t address, std::uint32_t /*flags*/) {
    const Call call("synDeviceFree");
    if (const Status refused = check(call, device); refused != abi::success) {
        return refused;
    }
    return call->buffers.erase(address) == 1 ? abi::success : abi::invalid_argument;
}

Status synHostMalloc(abi::DeviceId device, std::uint64_t size, std::uint32_t /*flags*/,
                     void** address) {
    const Call call("synHostMalloc");
    if (const Status refused = check(call, device); refused != abi::success) {
        return refused;
    }
    *address = std::malloc(size);
    call->host_buffers.insert(*address);
    return abi::success;
}

Status synHostFree(abi::DeviceId device, const void* address, std::uint32_t /*flags*/) {
    const Call call("synHostFree");
    if (const Status refused = check(call, device); refused != abi::success) {
        return refused;
    }
    void* const start = const_cast<void*>(address);
    if (call->host_buffers.erase(start) != 1) {
        return abi::invalid_argument;
    }
    std::free(start);
    return abi::success;
}

Status synStreamCreateGeneric(abi::Stream* stream, abi::DeviceId device, std::uint32_t /*flags*/) {
    const Call call("synStreamCreateGeneric");
    if (const Status refused = check(call, device); refused != abi::success) {
        return refused;
    }
    static rdmabuf::detail::habana::OpaqueStream only{};
    call->stream = &only;
    *stream = &only;
    return abi::success;
}

Status synStreamDestroy(abi::Stream stream) {
    const Call call("synStreamDestroy");
    if (stream == nullptr || stream != call->stream) {
        return abi::invalid_argument;
    }
    call->stream = nullptr;
    return abi::success;
}

Status synStreamSynchronize(abi::Stream stream) {
    const Call call("synStreamSynchronize");
    if (call.refused() != 0) {
        return call.refused();
    }
    return stream != nullptr && stream == call->stream ? abi::success : abi::invalid_argument;
}

Status synMemCopyAsync(abi::Stream stream, std::uint64_t from, std::uint64_t size, std::uint64_t to,
                       abi::Direction direction) {
    const Call call("synMemCopyAsync");
    if (call.refused() != 0) {
        return call.refused();
    }
    const bool out = direction == abi::Direction::device_to_host;
    const std::uint64_t device = out ? from : to;
    auto* const host = reinterpret_cast<void*>(out ? to : from);
    if (stream == nullptr || stream != call->stream || !call->host_buffers.contains(host) ||
        !call->allocated(device, size)) {
        return abi::invalid_argument;
    }
    std::byte* const bytes = call->memory.bytes(device);
    std::memcpy(out ? host : bytes, out ? bytes : host, size);
    return abi::success;
}

unsigned fake_habana_live() {
    const std::lock_guard lock(fake_habana::Machine::get().mutex);
    return static_cast<unsigned>(fake_habana::Machine::get().buffers.size() +
                                 fake_habana::Machine::get().host_buffers.size());
}

bool fake_habana_acquired() {
    const std::lock_guard lock(fake_habana::Machine::get().mutex);
    return fake_habana::Machine::get().acquired >= 0;
}
