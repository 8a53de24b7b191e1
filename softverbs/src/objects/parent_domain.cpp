// SPDX-License-Identifier: BSD-3-Clause
#include "objects/parent_domain.hpp"

#include <errno.h>

#include <memory>

#include "objects/memory_region.hpp"
#include "objects/process.hpp"

namespace softverbs {

Td* alloc_td(Context& context, const ibv_td_init_attr& attributes) {
    if (attributes.comp_mask != 0) {
        return fail(EINVAL);
    }
    auto made = std::make_unique<Td>();
    made->context = &context.context;
    count(context, SOFTVERBS_TD, 1);
    return made.release();
}

int dealloc_td(Td& td) {
    if (td.users != 0) {
        return busy();
    }
    count(context_of(td), SOFTVERBS_TD, -1);
    delete &td;
    return 0;
}

ParentDomain* alloc_parent_domain(Context& context, const ibv_parent_domain_init_attr& attributes) {
    constexpr std::uint32_t known =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (attributes.pd == nullptr || attributes.pd->context != &context.context ||
        (attributes.comp_mask & ~known) != 0 ||
        (attributes.td != nullptr && attributes.td->context != &context.context)) {
        return fail(EINVAL);
    }
    auto made = std::make_unique<ParentDomain>();
    made->context = &context.context;
    // As ibv_initialize_parent_domain() in libibverbs does, copy the handle of the protection
    // domain.
    made->handle = attributes.pd->handle;
    made->protection = static_cast<Pd*>(attributes.pd)->protection;
    made->td = static_cast<Td*>(attributes.td);
    if ((attributes.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) {
        made->alloc = attributes.alloc;
        made->free = attributes.free;
    }
    if ((attributes.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0) {
        made->program_context = attributes.pd_context;
    }
    if (made->td != nullptr) {
        ++made->td->users;
    }
    ++made->protection->users;
    count(context, SOFTVERBS_PD, 1);
    return made.release();
}

int dealloc_parent_domain(ParentDomain& domain) {
    if (domain.users != 0) {
        return busy();
    }
    if (domain.td != nullptr) {
        --domain.td->users;
    }
    --domain.protection->users;
    count(context_of(domain), SOFTVERBS_PD, -1);
    delete &domain;
    return 0;
}

void QueueMemory::Free::operator()(std::byte* memory) const {
    if (domain->free != nullptr) {
        domain->free(domain, domain->program_context, memory, type);
    }
}

int QueueMemory::obtain(ibv_pd* pd, std::size_t size, std::uint64_t type) {
    ParentDomain* const domain = pd != nullptr ? ParentDomain::of(pd) : nullptr;
    if (domain == nullptr || domain->alloc == nullptr || size == 0) {
        return 0;
    }
    void* const given = domain->alloc(domain, domain->program_context, size, page_size(), type);
    if (given == nullptr) {
        return ENOMEM;
    }
    if (given != IBV_ALLOCATOR_USE_DEFAULT) {
        memory_ = {static_cast<std::byte*>(given), Free{domain, type}};
        size_ = size;
    }
    return 0;
}

std::span<std::byte> QueueMemory::take(std::size_t size) noexcept {
    const std::size_t needed = aligned_size(size);
    if (memory_ == nullptr || needed > size_ - used_) {
        return {};
    }
    const std::span taken(memory_.get() + used_, size);
    used_ += needed;
    return taken;
}

} // namespace softverbs
