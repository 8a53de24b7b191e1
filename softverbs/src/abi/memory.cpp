// SPDX-License-Identifier: BSD-3-Clause
#include "objects/memory.hpp"

#include <errno.h>

#include <algorithm>
#include <atomic>

#include "abi/operations.hpp"
#include "abi/verbs.hpp"
#include "fabric/clock.hpp"

namespace softverbs {

namespace {

/// Waits for the duration of a registration (SOFTVERBS_REGISTRATION_DELAY). The registrations of a
/// device are executed one after the other; the devices are independent of each other. The caller
/// must not hold Process::lock.
void wait_for_registration(ibv_context& context) {
    const std::uint64_t delay = process().registration_delay_ns;
    if (delay == 0) {
        return;
    }
    const fabric::NoCancellation not_cancelled;
    const std::atomic_ref device_end(context_of(&context).device->registrations_end_ns);
    std::uint64_t before = device_end.load();
    std::uint64_t end = 0;
    do {
        end = std::max(before, fabric::now_ns()) + delay;
    } while (!device_end.compare_exchange_weak(before, end));
    fabric::sleep_until(end);
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
    wait_for_registration(*pd->context);
    return call("ibv_reg_mr", context_of(*pd), [&]() -> ibv_mr* {
        return reg_host_mr(*static_cast<Pd*>(pd), address, length, iova, access);
    });
}

int dereg_any_mr(Mr& mr) {
    return mr.kind == Mr::Kind::imported ? dereg_imported_mr(mr) : dereg_mr(mr);
}

} // namespace

int advise_mr_op(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* entries,
                 std::uint32_t count) {
    return call("ibv_advise_mr", context_of(*pd), [&] {
        return advise_mr(*static_cast<Pd*>(pd), advice, flags, {entries, count});
    });
}

ibv_mr* reg_dm_mr_op(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                     unsigned access) {
    wait_for_registration(*pd->context);
    return call("ibv_reg_dm_mr", context_of(*pd), [&]() -> ibv_mr* {
        return reg_dm_mr(*static_cast<Pd*>(pd), *static_cast<Dm*>(dm), offset, length, access);
    });
}

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
    return ours(pd->context) != nullptr
               ? reg_mr(pd, address, length, reinterpret_cast<std::uintptr_t>(address),
                        static_cast<unsigned>(access))
               : forward<ibv_reg_mr>("ibv_reg_mr", pd, address, length, access);
}

SOFTVERBS_ENTRY ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length,
                                        std::uint64_t iova, int access) {
    return ours(pd->context) != nullptr
               ? reg_mr(pd, address, length, iova, static_cast<unsigned>(access))
               : forward<ibv_reg_mr_iova>("ibv_reg_mr_iova", pd, address, length, iova, access);
}

SOFTVERBS_ENTRY ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length,
                                         std::uint64_t iova, unsigned access) {
    return ours(pd->context) != nullptr
               ? reg_mr(pd, address, length, iova, access)
               : forward<ibv_reg_mr_iova2>("ibv_reg_mr_iova2", pd, address, length, iova, access);
}

SOFTVERBS_ENTRY ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                                          std::uint64_t iova, int fd, int access) {
    if (ours(pd->context) == nullptr) {
        return forward<ibv_reg_dmabuf_mr>("ibv_reg_dmabuf_mr", pd, offset, length, iova, fd,
                                          access);
    }
    wait_for_registration(*pd->context);
    return call("ibv_reg_dmabuf_mr", context_of(*pd), [&]() -> ibv_mr* {
        return reg_dmabuf_mr(*static_cast<Pd*>(pd), offset, length, iova, fd,
                             static_cast<unsigned>(access));
    });
}

SOFTVERBS_ENTRY int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address,
                                 std::size_t length, int access) {
    if (ours(mr->context) == nullptr) {
        return forward<ibv_rereg_mr>("ibv_rereg_mr", mr, flags, pd, address, length, access);
    }
    const Guard guard;
    int error = enter("ibv_rereg_mr", context_of(*mr));
    if (error == 0 && static_cast<Mr*>(mr)->kind == Mr::Kind::imported) {
        error = EOPNOTSUPP;
    }
    const bool new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    if (error == 0 && new_pd && pd != nullptr && pd->context != mr->context) {
        error = EINVAL;
    }
    if (error != 0) {
        errno = error;
        return IBV_REREG_MR_ERR_INPUT; // the region has not changed
    }
    return rereg_mr(*static_cast<Mr*>(mr), flags, new_pd ? static_cast<Pd*>(pd) : nullptr, address,
                    length, access);
}

SOFTVERBS_ENTRY int ibv_dereg_mr(ibv_mr* mr) {
    return destroying_verb<ibv_dereg_mr, "ibv_dereg_mr", dereg_any_mr>(mr);
}

// An old verbs.h does not declare this function.
SOFTVERBS_ENTRY int ibv_dm_export_dmabuf_fd(ibv_dm* dm) {
    if (ours(dm->context) == nullptr) {
        static const auto real = reinterpret_cast<decltype(&ibv_dm_export_dmabuf_fd)>(
            real_symbol("ibv_dm_export_dmabuf_fd"));
        if (real == nullptr) {
            errno = ENOSYS;
            return -1;
        }
        return real(dm);
    }
    const Guard guard;
    if (const int error = enter("ibv_dm_export_dmabuf_fd", context_of(*dm)); error != 0) {
        errno = error;
        return -1;
    }
    return export_dm(*static_cast<Dm*>(dm));
}
