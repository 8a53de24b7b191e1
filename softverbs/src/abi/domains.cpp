// SPDX-License-Identifier: BSD-3-Clause
#include "abi/entry.hpp"
#include "abi/operations.hpp"
#include "objects/parent_domain.hpp"

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

} // namespace softverbs
