// SPDX-License-Identifier: BSD-3-Clause
#include "fake_neuron.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <iterator>

#include "runtime.hpp"

namespace abi = fake_neuron::abi;
using abi::Status;
using abi::Tensor;
using fake_neuron::Call;
using fake_neuron::Runtime;

// The definitions below have the types that rdmabuf calls them by, or they do not compile.
extern "C" {
extern abi::Init nrt_init;
extern abi::GetVersion nrt_get_version;
extern abi::GetTotalCoreCount nrt_get_total_nc_count;
extern abi::TensorAllocate nrt_tensor_allocate;
extern abi::TensorFree nrt_tensor_free;
extern abi::TensorGetAddress nrt_tensor_get_va;
extern abi::TensorRead nrt_tensor_read;
extern abi::TensorWrite nrt_tensor_write;
extern abi::GetDmabufFd nrt_get_dmabuf_fd;
}

namespace fake_neuron {

Runtime& Runtime::get() {
    static auto* const runtime = new Runtime;
    return *runtime;
}

Tensor* Runtime::allocate(std::size_t size) {
    const std::uint64_t address = memory.take(size, false);
    if (address == 0) {
        return nullptr;
    }
    auto& tensor = tensors[address];
    tensor = std::make_unique<Tensor>(Tensor{.address = address, .size = size});
    return tensor.get();
}

void Runtime::free(std::uint64_t address) {
    memory.give_back(address);
    tensors.erase(address);
}

const Tensor* Runtime::holder(std::uint64_t address) const {
    const auto after = tensors.upper_bound(address);
    if (after == tensors.begin()) {
        return nullptr;
    }
    const Tensor& tensor = *std::prev(after)->second;
    return address - tensor.address < tensor.size ? &tensor : nullptr;
}

Status Runtime::share(std::uint64_t address, std::size_t size, int* fd) {
    if (faults.no_descriptor) {
        *fd = -1;
        return abi::success;
    }
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t start = address / page * page;
    const std::uint64_t end = (address + size + page - 1) / page * page;
    *fd = memory.share(start, end - start - faults.shortfall);
    if (*fd < 0) {
        return abi::resource;
    }
    if (faults.inheritable) {
        ::fcntl(*fd, F_SETFD, 0);
    }
    return abi::success;
}

} // namespace fake_neuron

Status nrt_init(int framework, const char* /*framework_version*/, const char* /*layer_version*/) {
    const Call call("nrt_init");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (framework != abi::no_framework) {
        return abi::invalid;
    }
    if (call->initialised) {
        return abi::failure;
    }
    call->initialised = true;
    return abi::success;
}

Status nrt_get_version(abi::Version* version, std::size_t size) {
    const Call call("nrt_get_version");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (size != sizeof(*version)) {
        return abi::invalid;
    }
    *version = call->version;
    return abi::success;
}

Status nrt_get_total_nc_count(std::uint32_t* count) {
    const Call call("nrt_get_total_nc_count");
    *count = call->cores;
    return call.refused();
}

Status nrt_tensor_allocate(abi::Placement placement, int core, std::size_t size,
                           const char* /*name*/, Tensor** tensor) {
    const Call call("nrt_tensor_allocate");
    if (const Status refused = call.refused_unless_initialised(); refused != abi::success) {
        return refused;
    }
    if (placement != abi::Placement::device || core < 0 ||
        static_cast<unsigned>(core) >= call->cores || size == 0) {
        return abi::invalid;
    }
    *tensor = call->allocate(size);
    return *tensor != nullptr ? abi::success : abi::resource;
}

void nrt_tensor_free(Tensor** tensor) {
    const Call call("nrt_tensor_free");
    call->free((*tensor)->address);
    *tensor = nullptr;
}

void* nrt_tensor_get_va(const Tensor* tensor) {
    const Call call("nrt_tensor_get_va");
    return call->faults.no_address ? nullptr : reinterpret_cast<void*>(tensor->address);
}

Status nrt_tensor_read(const Tensor* tensor, void* buffer, std::size_t offset, std::size_t size) {
    const Call call("nrt_tensor_read");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (offset > tensor->size || size > tensor->size - offset) {
        return abi::invalid;
    }
    std::memcpy(buffer, call->memory.bytes(tensor->address + offset), size);
    return abi::success;
}

Status nrt_tensor_write(Tensor* tensor, const void* buffer, std::size_t offset, std::size_t size) {
    const Call call("nrt_tensor_write");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    if (offset > tensor->size || size > tensor->size - offset) {
        return abi::invalid;
    }
    std::memcpy(call->memory.bytes(tensor->address + offset), buffer, size);
    return abi::success;
}

Status nrt_get_dmabuf_fd(std::uint64_t address, std::uint64_t size, int* fd) {
    const Call call("nrt_get_dmabuf_fd");
    if (const Status refused = call.refused_unless_initialised(); refused != abi::success) {
        return refused;
    }
    const auto tensor = call->tensors.find(address);
    if (tensor == call->tensors.end() || size == 0 || size > tensor->second->size) {
        return abi::invalid;
    }
    return call->share(address, size, fd);
}

void fake_neuron_reset(unsigned cores) {
    const Call runtime("reset");
    runtime->memory.reset();
    runtime->tensors.clear();
    runtime->script = {};
    runtime->cores = cores;
    runtime->initialised = false;
    runtime->version = {.major = 2, .minor = 31, .patch = 24};
    runtime->faults = {};
}

void fake_neuron_fail(const char* function, unsigned nth, int status) {
    const std::lock_guard lock(Runtime::get().mutex);
    Runtime::get().script.fail(function, nth, status);
}

unsigned fake_neuron_calls(const char* function) {
    const std::lock_guard lock(Runtime::get().mutex);
    return Runtime::get().script.calls(function);
}

unsigned fake_neuron_all_calls() {
    const std::lock_guard lock(Runtime::get().mutex);
    return Runtime::get().script.all_calls();
}

void fake_neuron_set_version(unsigned major, unsigned minor, unsigned patch) {
    const std::lock_guard lock(Runtime::get().mutex);
    Runtime::get().version = {.major = major, .minor = minor, .patch = patch};
}

void fake_neuron_set_faults(const FakeNeuronFaults& faults) {
    const std::lock_guard lock(Runtime::get().mutex);
    Runtime::get().faults = faults;
}

std::uint64_t fake_neuron_make(std::size_t size) {
    const std::lock_guard lock(Runtime::get().mutex);
    Runtime::get().initialised = true;
    return Runtime::get().allocate(size)->address;
}

void fake_neuron_free(std::uint64_t address) {
    const std::lock_guard lock(Runtime::get().mutex);
    Runtime::get().free(address);
}

unsigned fake_neuron_live() {
    const std::lock_guard lock(Runtime::get().mutex);
    return static_cast<unsigned>(Runtime::get().tensors.size());
}

void* fake_neuron_bytes(std::uint64_t address) {
    const std::lock_guard lock(Runtime::get().mutex);
    return Runtime::get().memory.bytes(address);
}
