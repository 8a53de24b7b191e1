// SPDX-License-Identifier: BSD-3-Clause
#include "objects/cuda_memory.hpp"

#include <dlfcn.h>

#include <map>
#include <new>
#include <optional>

#include "objects/cuda_abi.hpp"

namespace softverbs {

using namespace cuda;

namespace {

struct Driver {
    PointerGetAttribute* pointer_get_attribute = nullptr;
    DevicePrimaryContextRetain* primary_context_retain = nullptr;
    ContextPushCurrent* context_push = nullptr;
    ContextPopCurrent* context_pop = nullptr;
    ContextGetId* context_id = nullptr;
    StreamCreate* stream_create = nullptr;
    StreamSynchronize* stream_synchronize = nullptr;
    MemcpyHtoDAsync* copy_to_device = nullptr;
    MemcpyDtoHAsync* copy_from_device = nullptr;
};

template <class Function>
bool look_up(void* library, const char* name, Function*& function) noexcept {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    return function != nullptr;
}

std::optional<Driver> find_driver() noexcept {
    // With RTLD_NOLOAD, the driver is found only if the program has loaded it. A program that has
    // CUDA memory has loaded it.
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) {
        return std::nullopt;
    }
    Driver driver;
    const bool complete =
        look_up(library, "cuPointerGetAttribute", driver.pointer_get_attribute) &&
        look_up(library, "cuDevicePrimaryCtxRetain", driver.primary_context_retain) &&
        look_up(library, "cuCtxPushCurrent_v2", driver.context_push) &&
        look_up(library, "cuCtxPopCurrent_v2", driver.context_pop) &&
        look_up(library, "cuCtxGetId", driver.context_id) &&
        look_up(library, "cuStreamCreate", driver.stream_create) &&
        look_up(library, "cuStreamSynchronize", driver.stream_synchronize) &&
        look_up(library, "cuMemcpyHtoDAsync_v2", driver.copy_to_device) &&
        look_up(library, "cuMemcpyDtoHAsync_v2", driver.copy_from_device);
    return complete ? std::optional(driver) : std::nullopt;
}

/// Returns the functions of the CUDA driver, or null if the program has not loaded the driver or
/// the driver lacks one of them.
const Driver* driver() noexcept {
    static std::optional<Driver> found;
    if (!found) {
        found = find_driver();
    }
    return found ? &*found : nullptr;
}

class Current {
  public:
    explicit Current(const Driver& driver, Context context) noexcept
        : driver_(driver), pushed_(driver.context_push(context) == success) {}
    ~Current() {
        if (pushed_) {
            Context popped = nullptr;
            static_cast<void>(driver_.context_pop(&popped));
        }
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

    explicit operator bool() const noexcept { return pushed_; }

  private:
    const Driver& driver_;
    bool pushed_;
};

bool is_device_memory(const Driver& driver, DevicePointer address) noexcept {
    unsigned type = 0;
    unsigned managed = 0;
    return driver.pointer_get_attribute(&type, PointerAttribute::memory_type, address) == success &&
           driver.pointer_get_attribute(&managed, PointerAttribute::is_managed, address) ==
               success &&
           type == memory_type_device && managed == 0;
}

/// Returns the CUDA context of the memory at @p address, or null if the driver reports an error.
/// Memory from cuMemMap() belongs to no context; for such memory, returns the primary context of
/// its device. The primary context is retained and never released, because ibv_dereg_mr(), which
/// would have to release it, must not call the CUDA driver.
Context context_of(const Driver& driver, DevicePointer address) noexcept {
    Context context = nullptr;
    int device = 0;
    if (driver.pointer_get_attribute(&context, PointerAttribute::context, address) == success &&
        context != nullptr) {
        return context;
    }
    static auto* const retained = new (std::nothrow) std::map<int, Context>;
    if (retained == nullptr || driver.pointer_get_attribute(
                                   &device, PointerAttribute::device_ordinal, address) != success) {
        return nullptr;
    }
    const auto [entry, is_new] = retained->try_emplace(device, nullptr);
    if (is_new && driver.primary_context_retain(&entry->second, device) != success) {
        retained->erase(entry);
        return nullptr;
    }
    return entry->second;
}

} // namespace

struct CudaMemory {
    const Driver* driver = nullptr;
    Context context = nullptr;
    unsigned long long context_id = 0;
    Stream stream = nullptr;
};

namespace {

/// Returns the ID of the current CUDA context, or 0 if the driver reports an error. A context that
/// is created later at the same address has another ID.
unsigned long long current_id(const Driver& driver) noexcept {
    unsigned long long id = 0;
    return driver.context_id(nullptr, &id) == success ? id : 0;
}

const CudaMemory* memory_of(const Driver& driver, Context context) {
    static auto* const known = new std::map<Context, CudaMemory>;
    const Current current(driver, context);
    if (!current) {
        return nullptr;
    }
    CudaMemory& memory = (*known)[context];
    const unsigned long long id = current_id(driver);
    if (memory.stream != nullptr && memory.context_id == id) {
        return &memory;
    }
    Stream stream = nullptr;
    if (id == 0 || driver.stream_create(&stream, stream_non_blocking) != success) {
        return nullptr;
    }
    memory = {.driver = &driver, .context = context, .context_id = id, .stream = stream};
    return &memory;
}

/// Calls @p start, which starts an asynchronous CUDA copy, and waits until the copy has ended.
/// Returns false if the driver reports an error. Also returns false, without a call of @p start, if
/// the program has destroyed the CUDA context: the stream then no longer exists either, and
/// NVIDIA's driver would crash if it were given this stream.
template <class Start>
bool copy(const CudaMemory& memory, Start&& start) noexcept {
    const Current current(*memory.driver, memory.context);
    return current && current_id(*memory.driver) == memory.context_id && start() == success &&
           memory.driver->stream_synchronize(memory.stream) == success;
}

} // namespace

const CudaMemory* find_cuda_memory(std::uint64_t address, std::size_t length) noexcept {
    const Driver* const cuda = driver();
    if (cuda == nullptr || !is_device_memory(*cuda, address) ||
        !is_device_memory(*cuda, address + length - 1)) {
        return nullptr;
    }
    try {
        Context context = context_of(*cuda, address);
        return context != nullptr ? memory_of(*cuda, context) : nullptr;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

bool read_cuda_memory(const CudaMemory& memory, const std::byte* from,
                      std::span<std::byte> into) noexcept {
    return copy(memory, [&] {
        return memory.driver->copy_from_device(into.data(), reinterpret_cast<DevicePointer>(from),
                                               into.size(), memory.stream);
    });
}

bool write_cuda_memory(const CudaMemory& memory, std::byte* to,
                       std::span<const std::byte> bytes) noexcept {
    return copy(memory, [&] {
        return memory.driver->copy_to_device(reinterpret_cast<DevicePointer>(to), bytes.data(),
                                             bytes.size(), memory.stream);
    });
}

} // namespace softverbs
