// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "abi/entry.hpp"
#include "abi/operations.hpp"
#include "objects/parent_domain.hpp"
#include "objects/xrc_domain.hpp"

namespace softverbs {

ibv_td* alloc_td_op(ibv_context* native, ibv_td_init_attr* attributes) {
    Context& context = context_of(native);
    return call("ibv_alloc_td", context,
                [&]() -> ibv_td* { return alloc_td(context, *attributes); });
}

int dealloc_td_op(ibv_td* td) {
    return destroy("ibv_dealloc_td", [&] { return dealloc_td(*static_cast<Td*>(td)); });
}

ibv_pd* alloc_parent_domain_op(ibv_context* native, ibv_parent_domain_init_attr* attributes) {
    Context& context = context_of(native);
    return call("ibv_alloc_parent_domain", context,
                [&]() -> ibv_pd* { return alloc_parent_domain(context, *attributes); });
}

ibv_xrcd* open_xrcd_op(ibv_context* native, ibv_xrcd_init_attr* attributes) {
    Context& context = context_of(native);
    return call("ibv_open_xrcd", context,
                [&]() -> ibv_xrcd* { return open_xrcd(context, *attributes); });
}

int close_xrcd_op(ibv_xrcd* xrcd) {
    return destroy("ibv_close_xrcd", [&] { return close_xrcd(*static_cast<Xrcd*>(xrcd)); });
}

ibv_qp* open_qp_op(ibv_context* native, ibv_qp_open_attr* attributes) {
    Context& context = context_of(native);
    return call("ibv_open_qp", context,
                [&] { return native_of<ibv_qp>(open_qp(context, *attributes)); });
}

int get_srq_num_op(ibv_srq* native, std::uint32_t* number) {
    const Guard guard;
    const Srq& srq = *static_cast<Srq*>(native);
    if (srq.number == 0) {
        return EINVAL; // only SRQs of type XRC have a number
    }
    *number = srq.number;
    return 0;
}

} // namespace softverbs
