// SPDX-License-Identifier: BSD-3-Clause
// Functions of libnrt.so.1 that rdmabuf calls. The fake is strict: it is initialised once, and
// nrt_get_dmabuf_fd() exports only from the first address of a tensor.
#include <cstring>

#include "functions.hpp"
#include "machine.hpp"

// A definition with another type than the type by which rdmabuf calls the function does not
// compile.
#define DECLARE_FUNCTION(scope, type, name) extern "C" scope::type name;
NEURON_FUNCTIONS(DECLARE_FUNCTION)
NEURON_PRIVATE_FUNCTIONS(DECLARE_FUNCTION)

namespace abi = rdmabuf::detail::neuron;
using abi::NrtStatus;
using abi::Tensor;
using fake_driver::address_of;
using fake_driver::Allocation;
using fake_driver::Machine;
using fake_driver::Needs;
using fake_driver::Setting;

namespace {

template <class Body>
NrtStatus call(const char* function, Body&& body) {
    return fake_driver::call<NrtStatus>(function, Needs::nothing, body);
}

template <class Body>
NrtStatus initialised_call(const char* function, Body&& body) {
    return fake_driver::call<NrtStatus>(function, Needs::initialised, body);
}

/// Returns the bytes of a part of a tensor, or null. The handle of a tensor is its address.
std::byte* part_of(Machine& machine, const Tensor* tensor, std::size_t offset, std::size_t size) {
    const Allocation* const found = machine.holder(address_of(tensor));
    return found != nullptr && offset <= found->size && size <= found->size - offset
               ? machine.memory.bytes(found->start + offset)
               : nullptr;
}

/// Exports the pages of a range.
NrtStatus share(Machine& machine, std::uint64_t address, std::size_t size, int* fd) {
    const std::size_t page = fake_driver::cpu_page_size();
    const std::uint64_t start = fake_driver::round_down(address, page);
    return machine.share(start, fake_driver::round_up(address + size, page) - start, fd)
               ? abi::success
               : abi::resource;
}

} // namespace

const fake_driver::Vendor& fake_driver::vendor() {
    static const Vendor neuron{.uninitialised = abi::uninitialized,
                               .devices = 2,
                               .settings = {{Setting::version, 2'031'024}},
                               .make_initialises = true};
    return neuron;
}

NrtStatus nrt_init(int framework, const char* /*framework_version*/,
                   const char* /*layer_version*/) {
    return call(__func__, [&](Machine& machine) -> NrtStatus {
        if (framework != abi::no_framework) {
            return abi::invalid;
        }
        if (machine.initialised()) {
            return abi::failure;
        }
        machine.initialise();
        return abi::success;
    });
}

NrtStatus nrt_get_version(abi::Version* version, std::size_t size) {
    return call(__func__, [&](Machine& machine) -> NrtStatus {
        if (size != sizeof(*version)) {
            return abi::invalid;
        }
        const auto number = static_cast<std::uint64_t>(machine.setting(Setting::version));
        *version = {
            .major = number / 1'000'000, .minor = number / 1'000 % 1'000, .patch = number % 1'000};
        return abi::success;
    });
}

NrtStatus nrt_get_total_nc_count(std::uint32_t* count) {
    return call(__func__, [&](Machine& machine) -> NrtStatus {
        *count = static_cast<std::uint32_t>(machine.devices.size());
        return abi::success;
    });
}

NrtStatus nrt_tensor_allocate(abi::Placement placement, int core, std::size_t size,
                              const char* /*name*/, Tensor** tensor) {
    return initialised_call(__func__, [&](Machine& machine) -> NrtStatus {
        if (placement != abi::Placement::device || !machine.has_device(core) || size == 0) {
            return abi::invalid;
        }
        *tensor = reinterpret_cast<Tensor*>(machine.allocate(
            {.size = size, .device = static_cast<unsigned>(core), .counted = true}));
        return *tensor != nullptr ? abi::success : abi::resource;
    });
}

void nrt_tensor_free(Tensor** tensor) {
    call(__func__, [](Machine&) { return abi::success; });
    Machine::get().free(address_of(*tensor));
    *tensor = nullptr;
}

void* nrt_tensor_get_va(const Tensor* tensor) {
    std::uint64_t address = 0;
    call(__func__, [&](Machine& machine) {
        address = machine.setting(Setting::no_address) != 0 ? 0 : address_of(tensor);
        return abi::success;
    });
    return fake_driver::pointer_to(address);
}

NrtStatus nrt_tensor_read(const Tensor* tensor, void* buffer, std::size_t offset,
                          std::size_t size) {
    return call(__func__, [&](Machine& machine) -> NrtStatus {
        const std::byte* const bytes = part_of(machine, tensor, offset, size);
        if (bytes == nullptr) {
            return abi::invalid;
        }
        std::memcpy(buffer, bytes, size);
        return abi::success;
    });
}

NrtStatus nrt_tensor_write(Tensor* tensor, const void* buffer, std::size_t offset,
                           std::size_t size) {
    return call(__func__, [&](Machine& machine) -> NrtStatus {
        std::byte* const bytes = part_of(machine, tensor, offset, size);
        if (bytes == nullptr) {
            return abi::invalid;
        }
        std::memcpy(bytes, buffer, size);
        return abi::success;
    });
}

NrtStatus nrt_get_dmabuf_fd(std::uint64_t address, std::uint64_t size, int* fd) {
    return initialised_call(__func__, [&](Machine& machine) -> NrtStatus {
        const Allocation* const found = machine.holder(address);
        return found == nullptr || found->start != address || size == 0 || size > found->size
                   ? abi::invalid
                   : share(machine, address, size, fd);
    });
}

NrtStatus nrt_get_dmabuf_fd_v2(std::uint64_t address, std::uint64_t size, int* fd,
                               std::uint64_t* offset) {
    return initialised_call(__func__, [&](Machine& machine) -> NrtStatus {
        if (size == 0 || machine.range(address, size) == nullptr) {
            return abi::invalid;
        }
        *offset = address % fake_driver::cpu_page_size() +
                  static_cast<std::uint64_t>(machine.setting(Setting::displacement));
        return share(machine, address, size, fd);
    });
}
