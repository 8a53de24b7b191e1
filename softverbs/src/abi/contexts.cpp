// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "abi/operations.hpp"
#include "abi/verbs.hpp"
#include "objects/device_file.hpp"
#include "objects/parent_domain.hpp"

namespace softverbs {

namespace {

void free_context(Context& context) {
    pthread_mutex_destroy(&context.context.mutex);
    --context.device->holders;
    ::close(context.context.cmd_fd);
    delete &context;
}

/// Frees the orphaned contexts that have no objects any more. A context is orphaned if the program
/// has closed it while objects of the context existed.
void free_orphaned_contexts() {
    std::erase_if(process().orphaned_contexts, [](Context* context) {
        const bool unused = context->users == 0;
        if (unused) {
            free_context(*context);
        }
        return unused;
    });
}

Context* open_device(Device& device) {
    auto file = std::make_shared<DeviceFile>();
    file->device = &device;
    const int cmd_fd = ObjectTable::create(device.index);
    if (cmd_fd < 0) {
        return nullptr;
    }
    Context* made = nullptr;
    try {
        file->identity = identity_of(cmd_fd).value_or(FileIdentity{});
        file->table = ObjectTable(cmd_fd);
        made = open_device(std::move(file), cmd_fd);
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
    }
    if (made == nullptr) {
        const int error = errno;
        ::close(cmd_fd);
        errno = error;
    }
    return made;
}

} // namespace

Context* open_device(std::shared_ptr<DeviceFile> file, int cmd_fd) {
    free_orphaned_contexts();
    Device& device = *file->device;
    auto made = std::make_unique<Context>();
    if (const int error = made->async.open(); error != 0) {
        return fail(error);
    }
    made->device = &device;
    made->file = std::move(file);
    made->sz = sizeof(verbs_context);
    set_operations(*made);
    ibv_context& context = made->context;
    context.device = &device;
    context.cmd_fd = cmd_fd;
    context.async_fd = made->async.fd();
    context.num_comp_vectors = device.completion_vectors;
    context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    // Reserve the memory now, because close_device() must not fail when it adds the context to
    // orphaned_contexts.
    process().orphaned_contexts.reserve(process().orphaned_contexts.size() +
                                        process().contexts.size() + 1);
    process().contexts.push_back(made.get());
    pthread_mutex_init(&context.mutex, nullptr);
    ++device.holders;
    ++process().live[SOFTVERBS_CONTEXT];
    return made.release();
}

namespace {

/// Implements ibv_close_device(). As in libibverbs, succeeds even if objects of the context still
/// exist, because some programs rely on this. Such a context is freed later, when all its objects
/// have been destroyed and a device is opened or closed.
int close_device(Context& context) {
    auto& process = softverbs::process();
    if (context.users != 0) {
        process.orphaned_contexts.push_back(&context);
        ++process.violations;
    }
    std::erase(process.contexts, &context);
    --process.live[SOFTVERBS_CONTEXT];
    if (context.users == 0) {
        free_context(context);
    }
    free_orphaned_contexts();
    return 0;
}

Pd* alloc_pd(Context& context) {
    const int most = context.device->attributes.orig_attr.max_pd;
    if (process().live[SOFTVERBS_PD] >= static_cast<std::size_t>(most)) {
        return fail(ENOMEM);
    }
    auto made = std::make_unique<Pd>();
    static std::uint32_t handles = 0;
    made->context = &context.context;
    made->handle = ++handles;
    context.file->pds.push_back(made.get());
    made->shared = context.file->table.add(SharedObject::Kind::pd, made->handle);
    ++context.users;
    ++process().live[SOFTVERBS_PD];
    return made.release();
}

int dealloc_pd(Pd& pd) {
    if (ParentDomain* const parent = ParentDomain::of(&pd); parent != nullptr) {
        return dealloc_parent_domain(*parent);
    }
    if (pd.imported && context_of(pd).file->of_other_process) {
        return EOPNOTSUPP; // only the other process can deallocate its protection domain
    }
    if (pd.imported) {
        // As in the kernel, deallocating an imported protection domain also deallocates the
        // original.
        Pd& original = *pd.protection;
        const int error = pd.users != 0 ? busy() : &original != &pd ? dealloc_pd(original) : 0;
        if (error == 0) {
            unimport_pd(pd);
        }
        return error;
    }
    DeviceFile& file = *context_of(pd).file;
    const auto uses_it = [&pd](const auto& imported) {
        return imported->protection == &pd && imported->users != 0;
    };
    if (pd.users != 0 || std::ranges::any_of(file.imported_pds, uses_it) ||
        (pd.shared != nullptr && is_used_by_others(*pd.shared))) {
        return busy();
    }
    file.table.remove(pd.shared);
    for (const auto& imported : file.imported_pds) {
        if (imported->protection == &pd) {
            imported->protection = imported.get(); // no memory region belongs to this domain
        }
    }
    std::erase(file.pds, &pd);
    --context_of(pd).users;
    --process().live[SOFTVERBS_PD];
    delete &pd;
    return 0;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY ibv_context* ibv_open_device(ibv_device* device) {
    Device* const known = ours(device);
    if (known == nullptr) {
        return forward<ibv_open_device>("ibv_open_device", device);
    }
    const fabric::NoCancellation not_cancelled;
    try {
        const Guard guard;
        if (const int error = process().faults.enter("ibv_open_device"); error != 0) {
            return fail(error);
        }
        Context* const made = open_device(*known);
        return made != nullptr ? &made->context : nullptr;
    } catch (const std::bad_alloc&) {
        return fail(ENOMEM);
    }
}

SOFTVERBS_ENTRY int ibv_close_device(ibv_context* native) {
    return destroying_verb<ibv_close_device, "ibv_close_device", close_device>(native);
}

SOFTVERBS_ENTRY ibv_pd* ibv_alloc_pd(ibv_context* native) {
    return verb<ibv_alloc_pd, "ibv_alloc_pd", alloc_pd>(native);
}

SOFTVERBS_ENTRY int ibv_dealloc_pd(ibv_pd* pd) {
    return destroying_verb<ibv_dealloc_pd, "ibv_dealloc_pd", dealloc_pd>(pd);
}

SOFTVERBS_ENTRY int ibv_fork_init() {
    // The real ibv_fork_init() returns ENOSYS if madvise(2) does not support MADV_DONTFORK, and
    // forward() if there is no real function. Ignore this error, because softverbs supports fork(2)
    // without preparation.
    const int error = forward<ibv_fork_init>("ibv_fork_init");
    return error == ENOSYS ? 0 : error;
}

SOFTVERBS_ENTRY ibv_fork_status ibv_is_fork_initialized() {
    static const auto real =
        reinterpret_cast<ibv_fork_status (*)()>(real_symbol("ibv_is_fork_initialized"));
    return real != nullptr ? real() : IBV_FORK_UNNEEDED;
}
