// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <memory>

#include "objects/memory_region.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {
namespace {

/// The access flags of a window. IBV_ACCESS_LOCAL_WRITE is accepted, as in libmlx5, but has no
/// effect, because a window has no lkey.
constexpr unsigned window_access = remote_access | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;

/// Returns the queue pair on which a type 2 memory window is bound. Returns null for type 1 windows
/// and for memory regions.
Qp* queue_pair_of(const Grant& grant) {
    return grant.qp_number != 0 ? process().qps.find(grant.qp_number) : nullptr;
}

/// Unbinds a window. Its key then gives no access.
void unbind(Grant& grant) {
    if (grant.mr == nullptr) {
        return;
    }
    --grant.mr->users;
    if (Qp* const qp = queue_pair_of(grant); qp != nullptr && qp->windows != 0) {
        --qp->windows;
    }
    grant = {.pd = grant.pd, .is_window = true};
}

/// Returns whether a window with these attributes may be bound to the region.
bool permits(const Mr& mr, const ibv_mw_bind_info& info) {
    const Grant& grant = mr.grant;
    const unsigned access = info.mw_access_flags;
    const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    return (grant.access & IBV_ACCESS_MW_BIND) != 0 && !grant.revoked &&
           (grant.access & IBV_ACCESS_ZERO_BASED) == 0 && (access & ~window_access) == 0 &&
           (!writes || (grant.access & IBV_ACCESS_LOCAL_WRITE) != 0) && info.addr >= grant.iova &&
           lies_within(info.addr - grant.iova, info.length, grant.length);
}

} // namespace

Mw* alloc_mw(Pd& pd, ibv_mw_type type) {
    static std::uint32_t handles = 0;
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
        return fail(EINVAL);
    }
    auto mw = std::make_unique<Mw>();
    if (may_create(SOFTVERBS_MW, device_of(pd).attributes.orig_attr.max_mw)) {
        mw->last_key = process().keys.insert(mw->grant);
    }
    if (mw->last_key == 0) {
        return fail(ENOMEM);
    }
    mw->rkey = mw->last_key;
    mw->context = pd.context;
    mw->pd = &pd;
    mw->handle = ++handles;
    mw->type = type;
    mw->grant.pd = pd.protection;
    mw->grant.is_window = true;
    ++mw->grant.pd->users;
    ++process().live[SOFTVERBS_MW];
    return mw.release();
}

int dealloc_mw(Mw& mw) {
    unbind(mw.grant);
    process().keys.erase(mw.last_key);
    --mw.grant.pd->users;
    --process().live[SOFTVERBS_MW];
    delete &mw;
    return 0;
}

bool bind_mw(const Qp& qp, Mw& mw, const ibv_mw_bind_info& info, std::uint32_t rkey,
             std::uint32_t old_rkey) {
    // The program may have deallocated the window since it posted the bind request. Then @p mw is a
    // dangling reference. Detect this with the key, which then belongs to no window or to another
    // window.
    if (process().keys.owner(rkey) != &mw.grant) {
        return false;
    }
    const bool reliable = qp.is_reliable() || qp.type() == IBV_QPT_UC;
    if (!reliable || &qp.pd() != mw.grant.pd) {
        return false;
    }
    const bool type_2 = mw.type == IBV_MW_TYPE_2;
    if (type_2 && old_rkey != mw.last_key) {
        return false;
    }
    if (info.mr == nullptr || info.length == 0) {
        if (!type_2) {
            unbind(mw.grant);
        }
        return !type_2;
    }
    if (!is_alive(info.mr)) {
        return false;
    }
    Mr& mr = *static_cast<Mr*>(info.mr);
    const bool zero_based = (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0;
    if (mr.grant.pd != mw.grant.pd || !permits(mr, info) || (type_2 && mw.grant.mr != nullptr) ||
        (!type_2 && zero_based)) {
        return false;
    }
    unbind(mw.grant);
    mw.grant = {
        .pd = mw.grant.pd,
        .mr = &mr,
        .rkey = rkey,
        .access = info.mw_access_flags,
        .iova = zero_based ? 0 : info.addr,
        .length = info.length,
        .base = mr.grant.base != nullptr ? mr.grant.base + (info.addr - mr.grant.iova) : nullptr,
        .qp_number = type_2 ? qp.number() : 0,
        .is_window = true,
    };
    ++mr.users;
    if (type_2) {
        mw.last_key = rkey;
    }
    if (Qp* const owner = queue_pair_of(mw.grant)) {
        ++owner->windows;
    }
    return true;
}

int check_type_1_bind(const Qp& qp, const ibv_mw_bind_info& info) {
    if ((info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) {
        return EINVAL;
    }
    // Without a region, this is an unbind. If the region does not exist, the request fails with
    // IBV_WC_MW_BIND_ERR.
    if (info.mr != nullptr && is_alive(info.mr)) {
        const Mr& mr = *static_cast<Mr*>(info.mr);
        if (mr.kind != Mr::Kind::host && mr.kind != Mr::Kind::dmabuf) {
            return ENOTSUP;
        }
        if ((mr.grant.access & IBV_ACCESS_ZERO_BASED) != 0) {
            return EINVAL;
        }
    }
    return can_bind(qp, info) ? 0 : EOPNOTSUPP;
}

bool can_bind(const Qp& qp, const ibv_mw_bind_info& info) {
    constexpr std::uint64_t most = std::uint64_t{1} << 31U;
    return info.length <= most || !device_of(qp.qp_base).rules.is_mlx5;
}

bool invalidate(const Qp& qp, std::uint32_t rkey) {
    Grant* const grant = process().keys.find_remote(rkey);
    if (grant == nullptr || !grant->is_window || grant->qp_number != qp.number()) {
        return false;
    }
    unbind(*grant);
    return true;
}

void invalidate_all(const Qp& qp) {
    if (qp.windows == 0) {
        return;
    }
    process().keys.for_each([&qp](Grant& grant) {
        if (grant.qp_number == qp.number()) {
            unbind(grant);
        }
    });
}

} // namespace softverbs
