// SPDX-License-Identifier: BSD-3-Clause
// Protection domains, regions and device memory.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "state.hpp"

using standin::fail;
using standin::Kind;
using standin::state;

namespace {

constexpr unsigned basic_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// ib_check_mr_access() of the kernel.
bool access_is_consistent(unsigned access) {
    return (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) == 0 ||
           (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

ibv_mr* make_mr(ibv_pd* pd, std::vector<const void*> parents, void* address, std::size_t length) {
    auto* const mr = state().make<ibv_mr>(Kind::mr, std::move(parents));
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = length;
    mr->lkey = state().next_number() << 8U;
    mr->rkey = mr->lkey | 1U;
    return mr;
}

/// 0, or what the kernel says to a dma-buf; memfds count as dma-bufs here.
int check_dmabuf(const standin::Device& device, int fd, std::uint64_t offset, std::size_t length) {
    if (device.dmabuf_unchecked) {
        return 0;
    }
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        return EBADF;
    }
    if (::fcntl(fd, F_GET_SEALS) < 0) {
        return EINVAL;
    }
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (offset > size || length > size - offset) {
        return EINVAL;
    }
    return device.dmabuf_attach_error;
}

int copy_to_dm(ibv_dm* native, std::uint64_t offset, const void* host, std::size_t length) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_memcpy_to_dm"); error != 0) {
        return error;
    }
    ++state().record.dm_copies;
    std::memcpy(static_cast<standin::Dm*>(native)->bytes.data() + offset, host, length);
    return 0;
}

int copy_from_dm(void* host, ibv_dm* native, std::uint64_t offset, std::size_t length) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_memcpy_from_dm"); error != 0) {
        return error;
    }
    ++state().record.dm_copies;
    std::memcpy(host, static_cast<standin::Dm*>(native)->bytes.data() + offset, length);
    return 0;
}

/// What stands in memory that malloc gave and nobody filled in.
template <class Function>
Function garbage() {
    return reinterpret_cast<Function>(std::uintptr_t{0xa5a5a5a5a5a5a5a5});
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_alloc_dm"); error != 0) {
        return fail(error);
    }
    const standin::Device& device = standin::device_of(context);
    constexpr std::uint32_t max_log2_alignment = 12;
    if (attributes->comp_mask != 0 || attributes->length == 0 ||
        attributes->length > device.attributes.max_dm_size ||
        attributes->log_align_req > max_log2_alignment) {
        return fail(EINVAL);
    }
    auto* const dm = state().make<standin::Dm>(Kind::dm, {context});
    dm->context = context;
    dm->bytes.resize(attributes->length);
    switch (device.dm_copy) {
        case standin::DmCopy::works:
            dm->memcpy_to_dm = copy_to_dm;
            dm->memcpy_from_dm = copy_from_dm;
            break;
        case standin::DmCopy::null_pointers:
            break;
        case standin::DmCopy::garbage_pointers:
            dm->memcpy_to_dm = garbage<decltype(dm->memcpy_to_dm)>();
            dm->memcpy_from_dm = garbage<decltype(dm->memcpy_from_dm)>();
            break;
    }
    return dm;
}

int free_dm(ibv_dm* dm) {
    const auto guard = standin::lock();
    return state().destroy(dm, Kind::dm, "ibv_free_dm");
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                  unsigned access) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_reg_dm_mr"); error != 0) {
        return fail(error);
    }
    state().record.registrations.push_back({"ibv_reg_dm_mr", offset, length, 0, -1, access});
    const std::size_t size = static_cast<standin::Dm*>(dm)->bytes.size();
    if ((access & IBV_ACCESS_ZERO_BASED) == 0 ||
        (access & ~(basic_access | IBV_ACCESS_ZERO_BASED)) != 0 || !access_is_consistent(access) ||
        offset > size || length > size - offset) {
        return fail(EINVAL);
    }
    return make_mr(pd, {pd, dm}, nullptr, length);
}

} // namespace

void standin::set_memory_operations(Context& context) {
    if (context.listed->spec.device_memory) {
        context.alloc_dm = alloc_dm;
        context.free_dm = free_dm;
        context.reg_dm_mr = reg_dm_mr;
    }
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_alloc_pd"); error != 0) {
        return fail(error);
    }
    auto* const pd = state().make<ibv_pd>(Kind::pd, {context});
    pd->context = context;
    return pd;
}

int ibv_dealloc_pd(ibv_pd* pd) {
    const auto guard = standin::lock();
    return state().destroy(pd, Kind::pd, "ibv_dealloc_pd");
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_reg_mr"); error != 0) {
        return fail(error);
    }
    state().record.registrations.push_back(
        {"ibv_reg_mr_iova2", reinterpret_cast<std::uintptr_t>(address), length, iova, -1, access});
    if (length == 0 || !access_is_consistent(access)) {
        return fail(EINVAL);
    }
    if (address == nullptr) {
        return fail(EFAULT);
    }
    return make_mr(pd, {pd}, address, length);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                          int fd, int access) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_reg_dmabuf_mr"); error != 0) {
        return fail(error);
    }
    const auto flags = static_cast<unsigned>(access);
    state().record.registrations.push_back({"ibv_reg_dmabuf_mr", offset, length, iova, fd, flags});
    const standin::Device& device = standin::device_of(pd->context);
    if (device.dmabuf_error != 0) {
        return fail(device.dmabuf_error);
    }
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if ((flags & ~(basic_access | IBV_ACCESS_RELAXED_ORDERING)) != 0 ||
        !access_is_consistent(flags) || length == 0 || offset % page != iova % page) {
        return fail(EINVAL);
    }
    if (const int error = check_dmabuf(device, fd, offset, length); error != 0) {
        return fail(error);
    }
    // Verbs puts the offset there, which is no address.
    return make_mr(pd, {pd}, reinterpret_cast<void*>(offset), length);
}

int ibv_dereg_mr(ibv_mr* mr) {
    const auto guard = standin::lock();
    return state().destroy(mr, Kind::mr, "ibv_dereg_mr");
}
