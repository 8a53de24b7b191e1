// SPDX-License-Identifier: BSD-3-Clause
#include "driver_calls.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "machine.hpp"

namespace fake_level_zero {
namespace {

constexpr std::size_t most_gpus = 8;
std::array<char, most_gpus> devices{};
char the_driver = 0;

/// A call, counted, with the machine locked; the result it fails with before it is looked at.
class Call {
  public:
    explicit Call(const char* function) : machine_(Machine::get()), lock_(machine_.mutex) {
        const auto planned = machine_.script.enter(function);
        machine_.interfere(function);
        planned_ = planned.has_value();
        if (planned) {
            refused_ = static_cast<ze_result_t>(*planned);
        } else if (!machine_.initialised) {
            refused_ = ZE_RESULT_ERROR_UNINITIALIZED;
        }
    }

    [[nodiscard]] bool refused() const noexcept { return refused_ != ZE_RESULT_SUCCESS; }
    /// To fail, and not for want of zeInit.
    [[nodiscard]] bool planned() const noexcept { return planned_; }
    [[nodiscard]] ze_result_t result() const noexcept { return refused_; }
    Machine* operator->() const noexcept { return &machine_; }

    [[nodiscard]] ze_device_handle_t device(unsigned gpu) const {
        return reinterpret_cast<ze_device_handle_t>(&devices.at(gpu));
    }
    [[nodiscard]] Gpu* gpu(ze_device_handle_t device) const {
        const auto index =
            static_cast<std::size_t>(reinterpret_cast<const char*>(device) - devices.data());
        return index < machine_.gpus.size() ? &machine_.gpus[index] : nullptr;
    }
    [[nodiscard]] const Context* context(ze_context_handle_t handle) const {
        const auto* const wanted = reinterpret_cast<const Context*>(handle);
        const auto found = std::find(machine_.contexts.begin(), machine_.contexts.end(), wanted);
        return found != machine_.contexts.end() || wanted == &machine_.program ? wanted : nullptr;
    }

  private:
    Machine& machine_;
    std::lock_guard<std::mutex> lock_;
    ze_result_t refused_ = ZE_RESULT_SUCCESS;
    bool planned_ = false;
};

template <class Item>
ze_result_t fill(std::uint32_t* count, Item* items, std::uint32_t there, Item (*item)(unsigned)) {
    if (*count == 0 || *count > there) {
        *count = there;
    }
    for (std::uint32_t i = 0; items != nullptr && i < *count; ++i) {
        items[i] = item(i);
    }
    return ZE_RESULT_SUCCESS;
}

std::uint64_t address_of(const void* pointer) {
    return reinterpret_cast<std::uint64_t>(pointer);
}

ze_memory_type_t type_of(FakeLevelZeroKind kind) {
    switch (kind) {
        case FakeLevelZeroKind::host:
            return ZE_MEMORY_TYPE_HOST;
        case FakeLevelZeroKind::shared:
            return ZE_MEMORY_TYPE_SHARED;
        case FakeLevelZeroKind::device:
            return ZE_MEMORY_TYPE_DEVICE;
    }
    return ZE_MEMORY_TYPE_UNKNOWN;
}

/// What is chained to a description, if it is of the type that is known there.
template <class Chained>
Chained* chained(void* next, ze_structure_type_t type) {
    auto* const found = static_cast<Chained*>(next);
    return found != nullptr && found->stype == type && found->pNext == nullptr ? found : nullptr;
}

ze_result_t export_to(Machine& machine, const Allocation& allocation, void* next) {
    auto* const exported =
        chained<ze_external_memory_export_fd_t>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD);
    if (exported == nullptr) {
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    }
    if (exported->flags != ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF) {
        return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    }
    if (allocation.kind == FakeLevelZeroKind::shared) {
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    }
    if (!allocation.described && machine.undescribed != success) {
        return static_cast<ze_result_t>(machine.undescribed);
    }
    if (machine.no_descriptor) {
        return ZE_RESULT_SUCCESS;
    }
    exported->fd = machine.descriptor(allocation.block);
    return exported->fd >= 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/// One end of a copy, where the CPU reaches it; null for one that leaves the memory it begins in.
std::byte* end_of_copy(Machine& machine, const void* pointer, std::size_t size) {
    const std::uint64_t address = address_of(pointer);
    for (const auto& [base, allocation] : machine.allocations) {
        if (address - base < allocation.size) {
            return size <= allocation.size - (address - base) ? machine.memory.bytes(address)
                                                              : nullptr;
        }
    }
    return static_cast<std::byte*>(const_cast<void*>(pointer));
}

} // namespace

namespace calls {

ze_result_t init(ze_init_flags_t flags) {
    Call call("zeInit");
    if (call.planned()) {
        return call.result();
    }
    if ((flags & ~std::uint32_t{ZE_INIT_FLAG_GPU_ONLY | ZE_INIT_FLAG_VPU_ONLY}) != 0) {
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    }
    call->initialised = true;
    return ZE_RESULT_SUCCESS;
}

ze_result_t driver_get(std::uint32_t* count, ze_driver_handle_t* drivers) {
    const Call call("zeDriverGet");
    return call.refused() ? call.result()
                          : fill<ze_driver_handle_t>(count, drivers, 1, [](unsigned) {
                                return reinterpret_cast<ze_driver_handle_t>(&the_driver);
                            });
}

ze_result_t driver_get_api_version(ze_driver_handle_t /*driver*/, ze_api_version_t* version) {
    const Call call("zeDriverGetApiVersion");
    *version = ZE_API_VERSION_1_3;
    return call.result();
}

ze_result_t device_get(ze_driver_handle_t driver, std::uint32_t* count, ze_device_handle_t* found) {
    const Call call("zeDeviceGet");
    if (call.refused()) {
        return call.result();
    }
    if (driver != reinterpret_cast<ze_driver_handle_t>(&the_driver)) {
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    }
    return fill<ze_device_handle_t>(
        count, found, static_cast<std::uint32_t>(call->gpus.size()),
        [](unsigned gpu) { return reinterpret_cast<ze_device_handle_t>(&devices.at(gpu)); });
}

ze_result_t device_get_properties(ze_device_handle_t device, ze_device_properties_t* properties) {
    const Call call("zeDeviceGetProperties");
    const Gpu* const gpu = call.gpu(device);
    if (call.refused() || gpu == nullptr ||
        properties->stype != ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES) {
        return call.refused() ? call.result() : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    properties->type = static_cast<ze_device_type_t>(gpu->type);
    std::strncpy(properties->name, "a GPU of the fake driver", sizeof(properties->name) - 1);
    return ZE_RESULT_SUCCESS;
}

ze_result_t device_get_external_memory_properties(
    ze_device_handle_t device, ze_device_external_memory_properties_t* properties) {
    const Call call("zeDeviceGetExternalMemoryProperties");
    const Gpu* const gpu = call.gpu(device);
    if (call.refused() || gpu == nullptr ||
        properties->stype != ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES) {
        return call.refused() ? call.result() : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    properties->memoryAllocationImportTypes = 0;
    properties->memoryAllocationExportTypes = gpu->export_types;
    return ZE_RESULT_SUCCESS;
}

ze_result_t device_get_queue_group_properties(ze_device_handle_t device, std::uint32_t* count,
                                              ze_command_queue_group_properties_t* properties) {
    const Call call("zeDeviceGetCommandQueueGroupProperties");
    if (call.refused() || call.gpu(device) == nullptr) {
        return call.refused() ? call.result() : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    // The first computes only.
    return fill<ze_command_queue_group_properties_t>(
        count, properties, 2, [](unsigned group) -> ze_command_queue_group_properties_t {
            return {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES,
                    .pNext = nullptr,
                    .flags = group == 0
                                 ? std::uint32_t{ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE}
                                 : std::uint32_t{ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY},
                    .maxMemoryFillPatternSize = 0,
                    .numQueues = 1};
        });
}

ze_result_t device_pci_get_properties(ze_device_handle_t device,
                                      ze_pci_ext_properties_t* properties) {
    const Call call("zeDevicePciGetPropertiesExt");
    if (call.refused() || call.gpu(device) == nullptr ||
        properties->stype != ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES) {
        return call.refused() ? call.result() : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const auto gpu =
        static_cast<std::uint32_t>(reinterpret_cast<const char*>(device) - devices.data());
    properties->address = {.domain = 1, .bus = 0x3a + gpu, .device = 0x1f, .function = 1};
    return ZE_RESULT_SUCCESS;
}

ze_result_t context_create(ze_driver_handle_t /*driver*/, const ze_context_desc_t* desc,
                           ze_context_handle_t* context) {
    const Call call("zeContextCreate");
    if (call.refused()) {
        return call.result();
    }
    if (desc->stype != ZE_STRUCTURE_TYPE_CONTEXT_DESC || desc->pNext != nullptr) {
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    }
    auto* const made = new Context{static_cast<unsigned>(call->contexts.size()) + 1};
    call->contexts.push_back(made);
    *context = reinterpret_cast<ze_context_handle_t>(made);
    return ZE_RESULT_SUCCESS;
}

ze_result_t mem_alloc_device(ze_context_handle_t context, const ze_device_mem_alloc_desc_t* desc,
                             std::size_t size, std::size_t alignment, ze_device_handle_t device,
                             void** pointer) {
    const Call call("zeMemAllocDevice");
    if (call.refused()) {
        return call.result();
    }
    const Context* const owner = call.context(context);
    const Gpu* const gpu = call.gpu(device);
    if (owner == nullptr || gpu == nullptr || size == 0 ||
        desc->stype != ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if ((alignment & (alignment - 1)) != 0 || alignment > call->page_size) {
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    }
    const auto* const exported = chained<const ze_external_memory_export_desc_t>(
        const_cast<void*>(desc->pNext), ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC);
    const std::uint64_t made =
        call->allocate({.size = size,
                        .kind = FakeLevelZeroKind::device,
                        .context = owner,
                        .gpu = static_cast<unsigned>(gpu - call->gpus.data()),
                        .described = exported != nullptr &&
                                     exported->flags == ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF});
    *pointer = reinterpret_cast<void*>(made);
    return made != 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
}

ze_result_t mem_free(ze_context_handle_t context, void* pointer) {
    const Call call("zeMemFree");
    if (call.refused()) {
        return call.result();
    }
    const bool known = call->holder(context, address_of(pointer), nullptr) != nullptr;
    return known && call->free(address_of(pointer)) ? ZE_RESULT_SUCCESS
                                                    : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t mem_get_alloc_properties(ze_context_handle_t context, const void* pointer,
                                     ze_memory_allocation_properties_t* properties,
                                     ze_device_handle_t* device) {
    // Exports have a name of their own in the script.
    const bool exports = properties->pNext != nullptr;
    Call call(exports ? "zeMemGetAllocProperties(export)" : "zeMemGetAllocProperties");
    if (call.refused()) {
        return call.result();
    }
    if (pointer == nullptr) {
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    if (call.context(context) == nullptr ||
        properties->stype != ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES) {
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    }
    const Allocation* const found = call->holder(context, address_of(pointer), nullptr);
    if (found == nullptr) {
        properties->type = ZE_MEMORY_TYPE_UNKNOWN;
        return ZE_RESULT_SUCCESS;
    }
    properties->type = type_of(found->kind);
    properties->id = found->id;
    properties->pageSize = call->page_size;
    *device = found->kind == FakeLevelZeroKind::device ? call.device(found->gpu) : nullptr;
    return exports ? export_to(*call.operator->(), *found, properties->pNext) : ZE_RESULT_SUCCESS;
}

ze_result_t mem_get_address_range(ze_context_handle_t context, const void* pointer, void** base,
                                  std::size_t* size) {
    const Call call("zeMemGetAddressRange");
    if (call.refused()) {
        return call.result();
    }
    std::uint64_t start = 0;
    const Allocation* const found = call->holder(context, address_of(pointer), &start);
    if (found == nullptr) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *base = reinterpret_cast<void*>(start);
    *size = found->size;
    return ZE_RESULT_SUCCESS;
}

ze_result_t mem_get_ipc_handle(ze_context_handle_t context, const void* pointer,
                               ze_ipc_mem_handle_t* handle) {
    const Call call("zeMemGetIpcHandle");
    if (call.refused()) {
        return call.result();
    }
    std::uint64_t start = 0;
    const Allocation* const found = call->holder(context, address_of(pointer), &start);
    if (found == nullptr || start != address_of(pointer) ||
        found->kind != FakeLevelZeroKind::device) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    ++call->blocks.at(found->block).ipc_references;
    call->descriptor(found->block);
    const std::uint64_t hidden = ~found->block;
    std::memcpy(handle->data, &hidden, sizeof(hidden));
    return ZE_RESULT_SUCCESS;
}

ze_result_t command_list_create_immediate(ze_context_handle_t context, ze_device_handle_t device,
                                          const ze_command_queue_desc_t* desc,
                                          ze_command_list_handle_t* list) {
    const Call call("zeCommandListCreateImmediate");
    if (call.refused()) {
        return call.result();
    }
    if (call.context(context) == nullptr || call.gpu(device) == nullptr || desc->ordinal != 1 ||
        desc->stype != ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC ||
        desc->mode != ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const auto* const made = new char;
    call->lists.insert(made);
    *list = reinterpret_cast<ze_command_list_handle_t>(const_cast<char*>(made));
    return ZE_RESULT_SUCCESS;
}

ze_result_t command_list_destroy(ze_command_list_handle_t list) {
    const Call call("zeCommandListDestroy");
    if (call.refused()) {
        return call.result();
    }
    if (call->lists.erase(list) == 0) {
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    }
    delete reinterpret_cast<const char*>(list);
    return ZE_RESULT_SUCCESS;
}

ze_result_t command_list_append_memory_copy(ze_command_list_handle_t list, void* to,
                                            const void* from, std::size_t size,
                                            ze_event_handle_t /*signal*/, std::uint32_t /*count*/,
                                            ze_event_handle_t* /*events*/) {
    const Call call("zeCommandListAppendMemoryCopy");
    if (call.refused()) {
        return call.result();
    }
    Machine& machine = *call.operator->();
    std::byte* const destination = end_of_copy(machine, to, size);
    const std::byte* const source = end_of_copy(machine, from, size);
    if (!machine.lists.contains(list) || destination == nullptr || source == nullptr) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    std::memcpy(destination, source, size);
    return ZE_RESULT_SUCCESS;
}

} // namespace calls
} // namespace fake_level_zero
