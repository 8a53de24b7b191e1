// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "objects/device_file.hpp"
#include "objects/mapping.hpp"
#include "objects/memory_region.hpp"
#include "objects/process.hpp"

namespace softverbs {
namespace {

constexpr unsigned region_access = IBV_ACCESS_LOCAL_WRITE | remote_access | IBV_ACCESS_ZERO_BASED;

/// All allocations of device memory of this process that are not freed. ibv_import_dm() searches
/// this list.
std::vector<DeviceMemory*>& allocations() {
    static auto* const all = new std::vector<DeviceMemory*>;
    return *all;
}

/// Rounds @p length up to a multiple of @p granule. Returns 0 on overflow.
std::size_t round_up(std::size_t length, std::size_t granule) {
    return (length + granule - 1) / granule * granule;
}

/// Marks device memory as freed, and subtracts its size from the device memory in use.
/// ibv_import_dm() then no longer finds the memory.
void free_memory(DeviceMemory& memory) noexcept {
    memory.freed = true;
    if (memory.file != nullptr) {
        memory.file->table.remove(memory.shared);
    }
    memory.device->dm_used -= memory.consumed;
    std::erase(allocations(), &memory);
}

/// Frees the device memory if no ibv_dm and no memory region uses it.
void let_go(DeviceMemory& memory) noexcept {
    if (memory.holders != 0 || memory.regions != 0) {
        return;
    }
    if (!memory.freed) {
        free_memory(memory);
    }
    Mapping* const mapping = memory.mapping;
    delete &memory;
    release(mapping);
}

/// Implements ibv_memcpy_to_dm() and ibv_memcpy_from_dm(): calls @p copy with the address of the
/// range, unless it is empty. Returns 0 or an errno: that of enter(), EFAULT (the range exceeds the
/// allocation), EINVAL (the range is not aligned).
template <class Copy>
int access_memory(std::string_view verb, ibv_dm* native, std::uint64_t offset, std::size_t length,
                  const Copy& copy) {
    constexpr std::size_t granule = 4; // libmlx5 copies 32-bit words (mlx5_access_dm())
    const Guard guard;
    const DeviceMemory& memory = *static_cast<Dm*>(native)->memory;
    if (const int error = enter(verb, context_of(*native)); error != 0) {
        return error;
    }
    if (!lies_within(offset, length, memory.length)) {
        return EFAULT;
    }
    if (offset % granule != 0 || length % granule != 0) {
        return EINVAL;
    }
    if (length != 0) {
        copy(memory.mapping->data + offset);
    }
    return 0;
}

int copy_in(ibv_dm* dm, std::uint64_t offset, const void* host, std::size_t length) {
    return access_memory("ibv_memcpy_to_dm", dm, offset, length,
                         [=](std::byte* memory) { std::memcpy(memory, host, length); });
}

int copy_out(void* host, ibv_dm* dm, std::uint64_t offset, std::size_t length) {
    return access_memory("ibv_memcpy_from_dm", dm, offset, length,
                         [=](const std::byte* memory) { std::memcpy(host, memory, length); });
}

void set_copy_functions(Dm& dm, const Device& device) {
    if (device.has(SOFTVERBS_FEATURE_DM_COPY_GARBAGE)) {
        // A provider that does not initialize these pointers may leave invalid pointers that are
        // not null. Imitate such a provider.
        dm.memcpy_to_dm = reinterpret_cast<decltype(dm.memcpy_to_dm)>(std::uintptr_t{1});
        dm.memcpy_from_dm = reinterpret_cast<decltype(dm.memcpy_from_dm)>(std::uintptr_t{1});
    } else if (device.has(SOFTVERBS_FEATURE_DM_COPY)) {
        dm.memcpy_to_dm = copy_in;
        dm.memcpy_from_dm = copy_out;
    }
}

/// Makes @p dm an ibv_dm for @p memory.
Dm* open_handle(std::unique_ptr<Dm> dm, Context& context, DeviceMemory& memory,
                bool imported) noexcept {
    dm->context = &context.context;
    dm->comp_mask = IBV_DM_MASK_HANDLE;
    dm->handle = memory.handle;
    dm->memory = &memory;
    dm->imported = imported;
    set_copy_functions(*dm, *context.device);
    ++memory.holders;
    count(context, SOFTVERBS_DM, 1);
    return dm.release();
}

/// Checks the attributes of ibv_alloc_dm(). Returns 0 or an errno. Stores in @p consumed how many
/// bytes of max_dm_size the allocation uses.
int check_allocation(const Device& device, const ibv_alloc_dm_attr& attributes,
                     std::size_t& consumed) {
    constexpr unsigned max_log_align = 12;
    const std::size_t most = device.attributes.max_dm_size;
    if (attributes.comp_mask != 0 || attributes.length == 0 || attributes.length > most ||
        attributes.log_align_req > max_log_align) {
        return EINVAL;
    }
    consumed = round_up(attributes.length, device.rules.dm_granule);
    if (consumed == 0 || device.dm_used > most || consumed > most - device.dm_used) {
        return ENOMEM;
    }
    return process().faults.dm_exhausted() ? ENOMEM : 0;
}

} // namespace

Dm* alloc_dm(Context& context, const ibv_alloc_dm_attr& attributes) {
    static std::uint32_t handles = 0;
    Device& device = *context.device;
    std::size_t consumed = 0;
    if (const int error = check_allocation(device, attributes, consumed); error != 0) {
        return fail(error);
    }
    auto memory = std::make_unique<DeviceMemory>();
    auto dm = std::make_unique<Dm>();
    allocations().reserve(allocations().size() + 1); // so that push_back() below does not throw
    // Programs can use this memfd as a dma-buf. The size of a dma-buf is a multiple of the page
    // size, so round the size of the memfd up.
    memory->mapping = make_memory("softverbs-dm", round_up(attributes.length, page_size()));
    if (memory->mapping == nullptr) {
        return nullptr;
    }
    memory->device = &device;
    memory->handle = ++handles;
    memory->length = attributes.length;
    memory->consumed = consumed;
    allocations().push_back(memory.get());
    device.dm_used += consumed;
    memory->file = context.file;
    memory->shared = context.file->table.add(SharedObject::Kind::dm, memory->handle,
                                             {.fd = memory->mapping->fd,
                                              .inode = memory->mapping->identity.number,
                                              .length = memory->length});
    return open_handle(std::move(dm), context, *memory.release(), false);
}

int free_dm(Dm& dm) {
    DeviceMemory& memory = *dm.memory;
    if (memory.regions != 0) {
        return busy();
    }
    if (!memory.freed) {
        free_memory(memory);
    }
    unimport_dm(dm);
    return 0;
}

int export_dm(Dm& dm) {
    return duplicate(dm.memory->mapping->fd);
}

namespace {

/// Implements import_dm() if another process has opened the device file of @p context: maps device
/// memory that the other process has allocated.
Dm* import_foreign_dm(Context& context, std::uint32_t handle) {
    const ObjectTable& table = context.file->table;
    const SharedObject* const shared = table.find(SharedObject::Kind::dm, handle);
    if (shared == nullptr) {
        return fail(ENOENT);
    }
    const fabric::UniqueFd fd(open_memory(table.owner(), shared->memory));
    if (!fd) {
        return nullptr;
    }
    auto memory = std::make_unique<DeviceMemory>();
    auto dm = std::make_unique<Dm>();
    memory->device = context.device;
    memory->handle = handle;
    memory->length = shared->memory.length;
    memory->mapping = map_descriptor(fd.get(), true);
    if (memory->mapping == nullptr) {
        return nullptr;
    }
    if (memory->length > memory->mapping->length) {
        release(memory->mapping);
        return fail(ENOENT);
    }
    return open_handle(std::move(dm), context, *memory.release(), true);
}

} // namespace

Dm* import_dm(Context& context, std::uint32_t handle) {
    if (context.file->of_other_process) {
        return import_foreign_dm(context, handle);
    }
    for (DeviceMemory* const memory : allocations()) {
        if (memory->handle == handle && memory->device == context.device) {
            return open_handle(std::make_unique<Dm>(), context, *memory, true);
        }
    }
    return fail(ENOENT);
}

void unimport_dm(Dm& dm) {
    DeviceMemory& memory = *dm.memory;
    --memory.holders;
    count(context_of(dm), SOFTVERBS_DM, -1);
    delete &dm;
    let_go(memory);
}

Mr* reg_dm_mr(Pd& pd, Dm& dm, std::uint64_t offset, std::size_t length, unsigned access) {
    DeviceMemory& memory = *dm.memory;
    if ((access & IBV_ACCESS_ZERO_BASED) == 0 || (access & ~region_access) != 0 ||
        !is_consistent(access) || !lies_within(offset, length, memory.length) || memory.freed ||
        memory.device != context_of(pd).device) {
        return fail(EINVAL);
    }
    auto mr = std::make_unique<Mr>();
    mr->kind = Mr::Kind::device_memory;
    mr->length = length;
    mr->mapping = memory.mapping;
    mr->mapping_offset = offset;
    mr->device_memory = &memory;
    mr->grant = {.access = access, .length = length, .base = memory.mapping->data + offset};
    retain(*memory.mapping);
    Mr* const region = enlist(std::move(mr), pd);
    if (region != nullptr) {
        ++memory.regions;
    }
    return region;
}

void end_region(DeviceMemory& memory) noexcept {
    --memory.regions;
    let_go(memory);
}

} // namespace softverbs
