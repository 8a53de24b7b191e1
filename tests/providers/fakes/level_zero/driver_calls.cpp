// SPDX-License-Identifier: BSD-3-Clause
// The functions of the driver, and the tables in which the loader requests them.
// <level_zero/ze_api.h> declares the types of the functions.
#include <level_zero/ze_ddi.h>

#include <array>
#include <cstring>
#include <iterator>

#include "fake_level_zero.hpp"
#include "machine.hpp"

using fake_driver::address_of;
using fake_driver::Allocation;
using fake_driver::Kind;
using fake_driver::Machine;
using fake_driver::Needs;
using fake_driver::Setting;

namespace fake_level_zero {
namespace {

std::array<char, 8> devices{};
char the_driver = 0;

ze_device_handle_t device_handle(unsigned gpu) {
    return reinterpret_cast<ze_device_handle_t>(&devices.at(gpu));
}

ze_driver_handle_t driver_handle(unsigned /*index*/) {
    return reinterpret_cast<ze_driver_handle_t>(&the_driver);
}

/// Contexts of zeContextCreate(). They are not destroyed, because rdmabuf keeps its contexts.
std::set<const void*>& contexts() {
    static auto* const all = new std::set<const void*>;
    return *all;
}

bool is_context(ze_context_handle_t handle) {
    return contexts().contains(handle) ||
           handle == static_cast<const void*>(Machine::get().program_contexts.data());
}

template <class Body>
ze_result_t call(const char* function, Body&& body) {
    return fake_driver::call<ze_result_t>(function, Needs::initialised, body);
}

/// Calls @p body with the index of a device, if the device exists.
template <class Body>
ze_result_t device_call(const char* function, ze_device_handle_t device, Body&& body) {
    return call(function, [&](Machine& machine) {
        const auto index = reinterpret_cast<const char*>(device) - devices.data();
        return machine.has_device(index) ? body(machine, static_cast<unsigned>(index))
                                         : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    });
}

/// Returns the allocation that contains an address, if the context finds it.
Allocation* holder(Machine& machine, ze_context_handle_t context, const void* pointer) {
    Allocation* const found = machine.holder(address_of(pointer));
    return found != nullptr && (machine.setting(Setting::shared_contexts) != 0 ||
                                found->context == static_cast<const void*>(context))
               ? found
               : nullptr;
}

/// Returns the block of fake_driver::reserve() that contains an address, 0 if there is none. With
/// memory of Kind::mapped in it, the block is a reservation of zeVirtualMemReserve, and a physical
/// memory of the same size, in which each mapping has the same offset as in the reservation.
/// Otherwise the block is a pool.
std::uint64_t reserved_block(const Machine& machine, const void* pointer) {
    const auto after = machine.blocks.upper_bound(address_of(pointer));
    if (after == machine.blocks.begin()) {
        return 0;
    }
    const auto& [start, block] = *std::prev(after);
    return block.reserved && address_of(pointer) - start < block.size ? start : 0;
}

bool has_mappings(const Machine& machine, std::uint64_t block) {
    const auto first = machine.allocations.lower_bound(block);
    return block != 0 && first != machine.allocations.end() && first->second.block == block &&
           first->second.kind == Kind::mapped;
}

/// Returns the id of the pool that contains an address, 0 if there is none. As in Intel's driver,
/// all addresses of a pool have its id, also those without an allocation
/// (Context::getMemAllocProperties() of compute-runtime).
std::uint64_t pool_of(const Machine& machine, const void* pointer) {
    const std::uint64_t block = reserved_block(machine, pointer);
    return block == 0 || has_mappings(machine, block) ? 0 : ~block;
}

template <class Item, class MakeItem>
ze_result_t fill(std::uint32_t* count, Item* items, std::size_t available, MakeItem make_item) {
    if (*count == 0 || *count > available) {
        *count = static_cast<std::uint32_t>(available);
    }
    for (std::uint32_t i = 0; items != nullptr && i < *count; ++i) {
        items[i] = make_item(i);
    }
    return ZE_RESULT_SUCCESS;
}

ze_memory_type_t type_of(const Machine& machine, Kind kind) {
    return kind == Kind::host      ? static_cast<ze_memory_type_t>(*machine.attribute(0, host_type))
           : kind == Kind::managed ? ZE_MEMORY_TYPE_SHARED
                                   : ZE_MEMORY_TYPE_DEVICE;
}

/// Returns the structure that is chained to another one, or null if it has another type.
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
    const auto undescribed = machine.setting(Setting::undescribed_result);
    if (allocation.kind == Kind::managed || (!allocation.exportable && undescribed != 0)) {
        return allocation.kind == Kind::managed ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
                                                : static_cast<ze_result_t>(undescribed);
    }
    if (machine.setting(Setting::no_descriptor) != 0) {
        return ZE_RESULT_SUCCESS;
    }
    exported->fd = keep_descriptor(allocation.start);
    return exported->fd >= 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/// Returns the bytes of one side of a copy; null if they are not inside one allocation.
std::byte* side_of_copy(Machine& machine, const void* pointer, std::size_t size) {
    return machine.holder(address_of(pointer)) != nullptr
               ? machine.range(address_of(pointer), size)
               : static_cast<std::byte*>(const_cast<void*>(pointer));
}

// The functions have the names of the loader's functions, because tests plan failures by these
// names. They are in a namespace, so that they do not replace the loader's functions.

ze_result_t zeInit(ze_init_flags_t flags) {
    return fake_driver::call<ze_result_t>(__func__, Needs::nothing, [&](Machine& machine) {
        if ((flags & ~std::uint32_t{ZE_INIT_FLAG_GPU_ONLY | ZE_INIT_FLAG_VPU_ONLY}) != 0) {
            return ZE_RESULT_ERROR_INVALID_ENUMERATION;
        }
        machine.recorded["zeInit"] = flags;
        if (!machine.initialised()) {
            machine.initialise();
        }
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeDriverGet(std::uint32_t* count, ze_driver_handle_t* drivers) {
    return call(__func__, [&](Machine&) { return fill(count, drivers, 1, driver_handle); });
}

ze_result_t zeDriverGetApiVersion(ze_driver_handle_t /*driver*/, ze_api_version_t* version) {
    return call(__func__, [&](Machine&) {
        *version = ZE_API_VERSION_1_3;
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeDeviceGet(ze_driver_handle_t driver, std::uint32_t* count,
                        ze_device_handle_t* found) {
    return call(__func__, [&](Machine& machine) {
        return driver == driver_handle(0)
                   ? fill(count, found, machine.devices.size(), device_handle)
                   : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    });
}

ze_result_t zeDeviceGetProperties(ze_device_handle_t device, ze_device_properties_t* properties) {
    return device_call(__func__, device, [&](Machine& machine, unsigned gpu) {
        if (properties->stype != ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
        properties->type = static_cast<ze_device_type_t>(*machine.attribute(gpu, device_type));
        std::strncpy(properties->name, "GPU of the fake driver", sizeof(properties->name) - 1);
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeDeviceGetExternalMemoryProperties(
    ze_device_handle_t device, ze_device_external_memory_properties_t* properties) {
    return device_call(__func__, device, [&](Machine& machine, unsigned gpu) {
        if (properties->stype != ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
        properties->memoryAllocationImportTypes = 0;
        properties->memoryAllocationExportTypes =
            static_cast<std::uint32_t>(*machine.attribute(gpu, export_types));
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeDeviceGetCommandQueueGroupProperties(
    ze_device_handle_t device, std::uint32_t* count,
    ze_command_queue_group_properties_t* properties) {
    return device_call(__func__, device, [&](Machine&, unsigned) {
        // The queues of the first group do not copy.
        return fill(count, properties, 2, [](unsigned group) {
            ze_command_queue_group_properties_t made{};
            made.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
            made.flags = group == 0 ? std::uint32_t{ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE}
                                    : std::uint32_t{ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY};
            made.numQueues = 1;
            return made;
        });
    });
}

ze_result_t zeDevicePciGetPropertiesExt(ze_device_handle_t device,
                                        ze_pci_ext_properties_t* properties) {
    return device_call(__func__, device, [&](Machine&, unsigned gpu) {
        if (properties->stype != ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
        properties->address = {.domain = 1, .bus = 0x3a + gpu, .device = 0x1f, .function = 1};
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeContextCreate(ze_driver_handle_t /*driver*/, const ze_context_desc_t* desc,
                            ze_context_handle_t* context) {
    return call(__func__, [&](Machine&) {
        if (desc->stype != ZE_STRUCTURE_TYPE_CONTEXT_DESC || desc->pNext != nullptr) {
            return ZE_RESULT_ERROR_INVALID_ENUMERATION;
        }
        *context = reinterpret_cast<ze_context_handle_t>(new char);
        contexts().insert(*context);
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t* desc,
                             std::size_t size, std::size_t alignment, ze_device_handle_t device,
                             void** pointer) {
    return device_call(__func__, device, [&](Machine& machine, unsigned gpu) {
        if (!is_context(context) || size == 0 ||
            desc->stype != ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
        if ((alignment & (alignment - 1)) != 0 ||
            alignment > static_cast<std::size_t>(machine.setting(Setting::block_alignment))) {
            return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
        }
        const auto* const exported = chained<const ze_external_memory_export_desc_t>(
            const_cast<void*>(desc->pNext), ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC);
        const bool exportable =
            exported != nullptr && exported->flags == ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
        *pointer = fake_driver::pointer_to(machine.allocate({.size = size,
                                                             .device = gpu,
                                                             .exportable = exportable,
                                                             .context = context,
                                                             .counted = true}));
        return *pointer != nullptr ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    });
}

ze_result_t zeMemFree(ze_context_handle_t context, void* pointer) {
    const ze_result_t allowed = call(__func__, [&](Machine& machine) {
        return holder(machine, context, pointer) != nullptr ? ZE_RESULT_SUCCESS
                                                            : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    });
    return allowed != ZE_RESULT_SUCCESS || Machine::get().free(address_of(pointer))
               ? allowed
               : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t zeMemGetAllocProperties(ze_context_handle_t context, const void* pointer,
                                    ze_memory_allocation_properties_t* properties,
                                    ze_device_handle_t* device) {
    // Tests plan failures of exports by a name of their own.
    const bool exports = properties->pNext != nullptr;
    return call(exports ? "zeMemGetAllocProperties(export)" : __func__, [&](Machine& machine) {
        if (pointer == nullptr) {
            return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
        }
        if (!is_context(context) ||
            properties->stype != ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES) {
            return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
        }
        const Allocation* const found = holder(machine, context, pointer);
        const std::uint64_t pool = pool_of(machine, pointer);
        if (found == nullptr) {
            properties->type = pool != 0 ? ZE_MEMORY_TYPE_DEVICE : ZE_MEMORY_TYPE_UNKNOWN;
            properties->id = pool;
            return ZE_RESULT_SUCCESS;
        }
        properties->type = type_of(machine, found->kind);
        properties->id = pool != 0                                         ? pool
                         : machine.setting(Setting::addresses_as_ids) != 0 ? found->start
                                                                           : found->id;
        properties->pageSize = fake_driver::cpu_page_size();
        *device = found->kind == Kind::device || found->kind == Kind::mapped
                      ? device_handle(found->device)
                      : nullptr;
        return exports ? export_to(machine, *found, properties->pNext) : ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeMemGetAddressRange(ze_context_handle_t context, const void* pointer, void** base,
                                 std::size_t* size) {
    return call(__func__, [&](Machine& machine) {
        const Allocation* const found = holder(machine, context, pointer);
        if (found == nullptr || machine.setting(Setting::no_extent) != 0) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
        *base = fake_driver::pointer_to(found->start);
        *size = found->size;
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeVirtualMemGetAccessAttribute(ze_context_handle_t context, const void* pointer,
                                           std::size_t size, ze_memory_access_attribute_t* access,
                                           std::size_t* reserved) {
    return call(__func__, [&](Machine& machine) {
        const std::uint64_t block = reserved_block(machine, pointer);
        if (!is_context(context) || !has_mappings(machine, block) ||
            size > machine.blocks.at(block).size - (address_of(pointer) - block)) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
        *access = ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
        *reserved = machine.blocks.at(block).size;
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device,
                                         const ze_command_queue_desc_t* desc,
                                         ze_command_list_handle_t* list) {
    return device_call(__func__, device, [&](Machine& machine, unsigned) {
        if (!is_context(context) || desc->ordinal != 1 ||
            desc->stype != ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC ||
            desc->mode != ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
        auto* const made = new char;
        machine.objects.insert(made);
        *list = reinterpret_cast<ze_command_list_handle_t>(made);
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeCommandListDestroy(ze_command_list_handle_t list) {
    return call(__func__, [&](Machine& machine) {
        if (machine.objects.erase(list) == 0) {
            return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
        }
        delete reinterpret_cast<char*>(list);
        return ZE_RESULT_SUCCESS;
    });
}

ze_result_t zeCommandListAppendMemoryCopy(ze_command_list_handle_t list, void* to, const void* from,
                                          std::size_t size, ze_event_handle_t /*signal*/,
                                          std::uint32_t /*count*/, ze_event_handle_t* /*events*/) {
    return call(__func__, [&](Machine& machine) {
        std::byte* const destination = side_of_copy(machine, to, size);
        const std::byte* const source = side_of_copy(machine, from, size);
        if (!machine.objects.contains(list) || destination == nullptr || source == nullptr) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
        std::memcpy(destination, source, size);
        return ZE_RESULT_SUCCESS;
    });
}

} // namespace
} // namespace fake_level_zero

namespace calls = fake_level_zero;

extern "C" {

ze_result_t zeGetGlobalProcAddrTable(ze_api_version_t /*version*/, ze_global_dditable_t* table) {
    table->pfnInit = calls::zeInit;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetDriverProcAddrTable(ze_api_version_t /*version*/, ze_driver_dditable_t* table) {
    table->pfnGet = calls::zeDriverGet;
    table->pfnGetApiVersion = calls::zeDriverGetApiVersion;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetDeviceProcAddrTable(ze_api_version_t /*version*/, ze_device_dditable_t* table) {
    table->pfnGet = calls::zeDeviceGet;
    table->pfnGetProperties = calls::zeDeviceGetProperties;
    table->pfnGetExternalMemoryProperties = calls::zeDeviceGetExternalMemoryProperties;
    table->pfnGetCommandQueueGroupProperties = calls::zeDeviceGetCommandQueueGroupProperties;
    table->pfnPciGetPropertiesExt = calls::zeDevicePciGetPropertiesExt;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetContextProcAddrTable(ze_api_version_t /*version*/, ze_context_dditable_t* table) {
    table->pfnCreate = calls::zeContextCreate;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetMemProcAddrTable(ze_api_version_t /*version*/, ze_mem_dditable_t* table) {
    table->pfnAllocDevice = calls::zeMemAllocDevice;
    table->pfnFree = calls::zeMemFree;
    table->pfnGetAllocProperties = calls::zeMemGetAllocProperties;
    table->pfnGetAddressRange = calls::zeMemGetAddressRange;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetVirtualMemProcAddrTable(ze_api_version_t /*version*/,
                                         ze_virtual_mem_dditable_t* table) {
    table->pfnGetAccessAttribute = calls::zeVirtualMemGetAccessAttribute;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetCommandListProcAddrTable(ze_api_version_t /*version*/,
                                          ze_command_list_dditable_t* table) {
    table->pfnCreateImmediate = calls::zeCommandListCreateImmediate;
    table->pfnDestroy = calls::zeCommandListDestroy;
    table->pfnAppendMemoryCopy = calls::zeCommandListAppendMemoryCopy;
    return ZE_RESULT_SUCCESS;
}

} // extern "C"
