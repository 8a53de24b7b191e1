// SPDX-License-Identifier: BSD-3-Clause
// Functions of libSynapse.so that rdmabuf calls. Synapse reserves all memory of a device as one
// mapping.
#include <cstdlib>
#include <cstring>

#include "fake_habana.hpp"
#include "functions.hpp"
#include "machine.hpp"

struct rdmabuf::detail::habana::OpaqueStream {
    int unused;
};

#define DECLARE_FUNCTION(scope, type, name) extern "C" scope::type name;
SYNAPSE_FUNCTIONS(DECLARE_FUNCTION)

namespace abi = fake_habana::abi;
using abi::Status;
using fake_driver::Machine;
using fake_driver::Needs;

namespace {

constexpr std::size_t pool_size = std::size_t{64} << 20U;
constexpr abi::DeviceId only_device = 7;

/// State of the library while the process has acquired a device, for which Machine::references
/// is 1.
int acquired = -1;
std::uint64_t pool = 0;
abi::Stream only_stream = nullptr;

template <class Body>
Status call(const char* function, Body&& body) {
    return fake_driver::call<Status>(function, Needs::nothing, body);
}

/// Calls @p body if the process has acquired the device.
template <class Body>
Status device_call(const char* function, abi::DeviceId device, Body&& body) {
    return call(function, [&](Machine& machine) -> Status {
        return machine.references == 0 || device != only_device ? abi::invalid_argument
                                                                : body(machine);
    });
}

} // namespace

Status synInitialize() {
    return call(__func__, [](Machine& machine) -> Status {
        const bool before = machine.recorded["synInitialize"] != 0;
        machine.recorded["synInitialize"] = 1;
        return before ? abi::already_initialized : abi::success;
    });
}

Status synDeviceAcquire(abi::DeviceId* device, const char* /*pci_bus_id*/) {
    return call(__func__, [&](Machine& machine) -> Status {
        if (machine.recorded["synInitialize"] == 0) {
            return abi::uninitialized;
        }
        if (machine.references != 0) {
            return abi::device_already_acquired;
        }
        if (machine.devices.empty()) {
            return abi::no_device_found;
        }
        machine.initialise();
        acquired = fake_habana::open_device(abi::DeviceName::gaudi2);
        pool = machine.reserve(pool_size);
        only_stream = nullptr;
        *device = only_device;
        return acquired >= 0 && pool != 0 ? abi::success : abi::failed;
    });
}

Status synDeviceRelease(abi::DeviceId device) {
    return device_call(__func__, device, [&](Machine& machine) -> Status {
        const auto first = machine.allocations.lower_bound(pool);
        const bool used = first != machine.allocations.end() && first->second.block == pool;
        if (used || !machine.objects.empty() || only_stream != nullptr) {
            return abi::failed;
        }
        fake_habana::close_device(acquired);
        machine.blocks.erase(pool);
        machine.memory.give_back(pool);
        machine.references = 0;
        return abi::success;
    });
}

Status synDeviceGetInfoV2(abi::DeviceId device, abi::DeviceInfo* info) {
    return device_call(__func__, device, [&](Machine&) -> Status {
        *info = {};
        info->fd = static_cast<std::uint32_t>(acquired);
        info->dram_size = pool_size;
        info->global_hbm_base_address = pool;
        return abi::success;
    });
}

Status synDeviceMalloc(abi::DeviceId device, std::uint64_t size, std::uint64_t /*wanted*/,
                       std::uint32_t /*flags*/, std::uint64_t* address) {
    return device_call(__func__, device, [&](Machine& machine) -> Status {
        *address = machine.fit(pool, size, 0, 1);
        if (*address == 0) {
            return abi::out_of_device_memory;
        }
        machine.place(*address, {.size = size, .counted = true});
        return abi::success;
    });
}

Status synDeviceFree(abi::DeviceId device, std::uint64_t address, std::uint32_t /*flags*/) {
    const Status refused = device_call(__func__, device, [](Machine&) { return abi::success; });
    return refused != abi::success || Machine::get().free(address) ? refused
                                                                   : abi::invalid_argument;
}

Status synHostMalloc(abi::DeviceId device, std::uint64_t size, std::uint32_t /*flags*/,
                     void** address) {
    return device_call(__func__, device, [&](Machine& machine) -> Status {
        *address = std::malloc(size);
        machine.objects.insert(*address);
        return abi::success;
    });
}

Status synHostFree(abi::DeviceId device, const void* address, std::uint32_t /*flags*/) {
    return device_call(__func__, device, [&](Machine& machine) -> Status {
        if (machine.objects.erase(address) != 1) {
            return abi::invalid_argument;
        }
        std::free(const_cast<void*>(address));
        return abi::success;
    });
}

Status synStreamCreateGeneric(abi::Stream* stream, abi::DeviceId device, std::uint32_t /*flags*/) {
    return device_call(__func__, device, [&](Machine&) -> Status {
        static rdmabuf::detail::habana::OpaqueStream only{};
        only_stream = &only;
        *stream = &only;
        return abi::success;
    });
}

Status synStreamDestroy(abi::Stream stream) {
    return call(__func__, [&](Machine&) -> Status {
        if (stream == nullptr || stream != only_stream) {
            return abi::invalid_argument;
        }
        only_stream = nullptr;
        return abi::success;
    });
}

Status synStreamSynchronize(abi::Stream stream) {
    return call(__func__, [&](Machine&) -> Status {
        return stream != nullptr && stream == only_stream ? abi::success : abi::invalid_argument;
    });
}

Status synMemCopyAsync(abi::Stream stream, std::uint64_t from, std::uint64_t size, std::uint64_t to,
                       abi::Direction direction) {
    return call(__func__, [&](Machine& machine) -> Status {
        const bool out = direction == abi::Direction::device_to_host;
        std::byte* const bytes = machine.range(out ? from : to, size);
        void* const host = fake_driver::pointer_to(out ? to : from);
        if (stream == nullptr || stream != only_stream || !machine.objects.contains(host) ||
            bytes == nullptr) {
            return abi::invalid_argument;
        }
        std::memcpy(out ? host : bytes, out ? bytes : host, size);
        return abi::success;
    });
}
