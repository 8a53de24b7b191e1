// SPDX-License-Identifier: BSD-3-Clause

// ibv_import_device() and the verbs that import protection domains, memory regions and device
// memory. Two contexts share these objects if they have the same open device file (cmd_fd). The
// kernel finds a shared object by its handle in that file. softverbs searches the objects of this
// process or, if another process has opened the file, the object table in the file.
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "abi/verbs.hpp"
#include "fabric/unique_fd.hpp"
#include "objects/device_file.hpp"
#include "objects/mapping.hpp"
#include "objects/memory_region.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

/// Returns the DeviceFile of the open device file @p identity; null if no context of this process
/// uses this file.
std::shared_ptr<DeviceFile> find_open_file(const FileIdentity& identity) {
    for (const auto* const contexts : {&process().contexts, &process().orphaned_contexts}) {
        for (Context* const context : *contexts) {
            if (context->file->identity == identity) {
                return context->file;
            }
        }
    }
    return nullptr;
}

/// Implements ibv_import_device() for software devices. Returns no value if @p cmd_fd does not
/// belong to a software device. Returns null and sets errno on failure; the caller then still owns
/// @p cmd_fd.
std::optional<Context*> import_device(int cmd_fd) {
    const std::optional<FileIdentity> identity = identity_of(cmd_fd);
    if (!identity) {
        return std::nullopt;
    }
    std::shared_ptr<DeviceFile> file = find_open_file(*identity);
    if (file == nullptr) {
        const std::optional<unsigned> index = ObjectTable::device_of(cmd_fd);
        if (!index || *index >= process().devices.size()) {
            return std::nullopt;
        }
        // Another process has opened the device file, so this process has no DeviceFile for it yet.
        // Create one for the device with the same index in this process.
        file = std::make_shared<DeviceFile>();
        file->device = process().devices[*index].get();
        file->identity = *identity;
        file->of_other_process = true;
        file->table = ObjectTable(cmd_fd);
        if (!file->table) {
            return fail(errno);
        }
    }
    return open_device(std::move(file), cmd_fd);
}

/// Returns the protection domain with this handle in the device file of @p context; null if there
/// is none.
Pd* find_pd(const Context& context, std::uint32_t handle) {
    const auto& all = context.file->pds;
    const auto found =
        std::ranges::find_if(all, [handle](const Pd* pd) { return pd->handle == handle; });
    return found != all.end() ? *found : nullptr;
}

/// Returns the Pd of this process for a protection domain of another process, and creates the Pd if
/// necessary. Returns null if the protection domain does not exist.
Pd* find_foreign_pd(Context& context, std::uint32_t handle) {
    DeviceFile& file = *context.file;
    SharedObject* const shared = file.table.find(SharedObject::Kind::pd, handle);
    if (shared == nullptr) {
        return nullptr;
    }
    const auto found = std::ranges::find_if(file.foreign_pds,
                                            [=](const auto& pd) { return pd->handle == handle; });
    if (found != file.foreign_pds.end()) {
        return found->get();
    }
    auto made = std::make_unique<Pd>();
    made->context = &context.context;
    made->handle = handle;
    made->users.share(shared->users);
    shared->importer = ::getpid();
    file.foreign_pds.push_back(std::move(made));
    return file.foreign_pds.back().get();
}

Pd* import_pd(Context& context, std::uint32_t handle) {
    const bool foreign = context.file->of_other_process;
    Pd* const original = foreign ? find_foreign_pd(context, handle) : find_pd(context, handle);
    if (original == nullptr) {
        return fail(ENOENT);
    }
    auto made = std::make_unique<Pd>();
    made->context = &context.context;
    made->handle = handle;
    made->protection = original->protection;
    made->imported = true;
    if (foreign) {
        made->users.share(context.file->table.find(SharedObject::Kind::pd, handle)->users);
    }
    context.file->imported_pds.push_back(std::move(made));
    ++context.users;
    ++process().live[SOFTVERBS_PD];
    return context.file->imported_pds.back().get();
}

/// Returns the memory region with this handle in the device file of @p context; null if there is
/// none.
Mr* find_mr(const Context& context, std::uint32_t handle) {
    Mr* found = nullptr;
    process().keys.for_each([&](const Grant& grant) {
        if (!grant.is_window && grant.mr != nullptr && grant.mr->handle == handle &&
            context_of(*grant.mr).file == context.file) {
            found = grant.mr;
        }
    });
    return found;
}

ForeignRegion* find_foreign_region(const DeviceFile& file, std::uint32_t handle) {
    const auto found = std::ranges::find_if(
        file.foreign_regions, [=](const auto& each) { return each->region.handle == handle; });
    return found != file.foreign_regions.end() ? found->get() : nullptr;
}

/// Maps the memory of a region of another process, and adds the lkey and the rkey of the region to
/// the keys of this process (Process::keys). On failure, returns null and sets errno.
ForeignRegion* add_foreign_region(Context& context, std::uint32_t handle) {
    DeviceFile& file = *context.file;
    SharedObject* const shared = file.table.find(SharedObject::Kind::mr, handle);
    const SharedMemory memory = shared != nullptr ? shared->memory : SharedMemory{};
    Pd* const pd = shared != nullptr ? find_foreign_pd(context, memory.pd) : nullptr;
    if (pd == nullptr || !is_current(*shared, handle)) {
        return fail(ENOENT);
    }
    file.foreign_regions.reserve(file.foreign_regions.size() + 1);
    auto made = std::make_unique<ForeignRegion>();
    const fabric::UniqueFd fd(open_memory(file.table.owner(), memory));
    if (!fd) {
        return nullptr;
    }
    Mapping* const mapping =
        map_descriptor(fd.get(), (memory.access & IBV_ACCESS_LOCAL_WRITE) != 0);
    if (mapping == nullptr) {
        return nullptr;
    }
    Mr& region = made->region;
    region.kind = Mr::Kind::dmabuf;
    region.context = &context.context;
    region.handle = handle;
    region.length = memory.length;
    region.mapping_offset = memory.offset;
    region.shared = shared;
    region.is_foreign = true;
    region.grant.pd = pd;
    region.grant.mr = &region;
    region.grant.lkey = memory.key;
    region.grant.rkey = KeyTable::remote_key(memory.key);
    region.grant.access = memory.access;
    region.grant.iova = memory.iova;
    region.grant.length = memory.length;
    region.grant.base = mapping->data + memory.offset;
    if (!lies_within(memory.offset, memory.length, mapping->length) ||
        !process().keys.insert_foreign(region.grant)) {
        release(mapping);
        return fail(ENOMEM);
    }
    region.mapping = mapping; // from here on, the destructor of ForeignRegion releases the mapping
    file.foreign_regions.push_back(std::move(made));
    return file.foreign_regions.back().get();
}

/// Removes one import of a memory region of another process. When the last import is removed, frees
/// the ForeignRegion, which unmaps the memory.
void release_foreign_region(DeviceFile& file, std::uint32_t handle) {
    const auto found = std::ranges::find_if(
        file.foreign_regions, [=](const auto& each) { return each->region.handle == handle; });
    if (found == file.foreign_regions.end() || --(*found)->imports != 0) {
        return;
    }
    const std::unique_ptr<ForeignRegion> last = std::move(*found);
    file.foreign_regions.erase(found);
}

/// Returns the region with this handle in the device file of @p context. If another process has
/// opened the file, maps the memory of the region if it is not mapped yet, and increments
/// ForeignRegion::imports. On failure, returns null and sets errno.
const Mr* find_original(Context& context, std::uint32_t handle) {
    if (!context.file->of_other_process) {
        const Mr* const original = find_mr(context, handle);
        return original != nullptr ? original : fail(ENOENT);
    }
    ForeignRegion* foreign = find_foreign_region(*context.file, handle);
    if (foreign == nullptr) {
        foreign = add_foreign_region(context, handle);
    } else if (!is_current(*foreign->region.shared, handle)) {
        return fail(ENOENT);
    }
    if (foreign == nullptr) {
        return nullptr;
    }
    ++foreign->imports;
    return &foreign->region;
}

Mr* import_mr(Pd& pd, std::uint32_t handle) {
    auto made = std::make_unique<Mr>();
    const Mr* const original = find_original(context_of(pd), handle);
    if (original == nullptr) {
        return nullptr;
    }
    made->kind = Mr::Kind::imported;
    made->context = pd.context;
    made->pd = &pd;
    made->handle = handle;
    made->length = original->length;
    made->lkey = original->grant.lkey;
    made->rkey = original->grant.rkey;
    ++pd.users;
    ++process().live[SOFTVERBS_MR];
    return made.release();
}

Dm* import_dm_if_supported(Context& context, std::uint32_t handle) {
    return context.device->has(SOFTVERBS_FEATURE_DM) ? import_dm(context, handle)
                                                     : fail(EOPNOTSUPP);
}

} // namespace

ForeignRegion::~ForeignRegion() {
    if (region.mapping != nullptr) {
        process().keys.erase(region.grant.lkey);
        process().engine.withdraw_responses();
        process().engine.wait_for_writes();
        release(region.mapping);
    }
}

void unimport_pd(Pd& pd) {
    if (!pd.imported) {
        return;
    }
    --context_of(pd).users;
    --process().live[SOFTVERBS_PD];
    // Free the imported protection domain, unless objects such as queue pairs still use it. In that
    // case, it is freed later, with the DeviceFile.
    if (pd.users == 0) {
        std::erase_if(context_of(pd).file->imported_pds,
                      [&pd](const auto& imported) { return imported.get() == &pd; });
    }
}

void unimport_mr(Mr& mr) {
    if (mr.kind != Mr::Kind::imported) {
        return;
    }
    --static_cast<Pd*>(mr.pd)->users;
    --process().live[SOFTVERBS_MR];
    if (DeviceFile& file = *context_of(mr).file; file.of_other_process) {
        release_foreign_region(file, mr.handle);
    }
    delete &mr;
}

int dereg_imported_mr(Mr& mr) {
    if (context_of(mr).file->of_other_process) {
        return EOPNOTSUPP; // only the other process can deregister its region
    }
    if (Mr* const original = find_mr(context_of(mr), mr.handle); original != nullptr) {
        revoke(*original);
    }
    unimport_mr(mr);
    return 0;
}

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY ibv_context* ibv_import_device(int cmd_fd) {
    const fabric::NoCancellation not_cancelled;
    try {
        std::optional<Context*> imported;
        {
            const Guard guard;
            if (const int error = process().faults.enter("ibv_import_device"); error != 0) {
                return fail(error);
            }
            imported = import_device(cmd_fd);
        }
        if (imported) {
            return *imported != nullptr ? &(*imported)->context : nullptr;
        }
    } catch (const std::bad_alloc&) {
        return fail(ENOMEM);
    }
    const RealDevicesOnly real;
    return forward<ibv_import_device>("ibv_import_device", cmd_fd);
}

SOFTVERBS_ENTRY ibv_pd* ibv_import_pd(ibv_context* native, std::uint32_t handle) {
    return verb<ibv_import_pd, "ibv_import_pd", import_pd>(native, handle);
}

SOFTVERBS_ENTRY void ibv_unimport_pd(ibv_pd* pd) {
    unimporting_verb<ibv_unimport_pd, "ibv_unimport_pd", unimport_pd>(pd);
}

SOFTVERBS_ENTRY ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
    return verb<ibv_import_mr, "ibv_import_mr", import_mr>(pd, handle);
}

SOFTVERBS_ENTRY void ibv_unimport_mr(ibv_mr* mr) {
    unimporting_verb<ibv_unimport_mr, "ibv_unimport_mr", unimport_mr>(mr);
}

SOFTVERBS_ENTRY ibv_dm* ibv_import_dm(ibv_context* native, std::uint32_t handle) {
    return verb<ibv_import_dm, "ibv_import_dm", import_dm_if_supported>(native, handle);
}

SOFTVERBS_ENTRY void ibv_unimport_dm(ibv_dm* dm) {
    unimporting_verb<ibv_unimport_dm, "ibv_unimport_dm", unimport_dm>(dm);
}
