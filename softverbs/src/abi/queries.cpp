// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <errno.h>

#include <algorithm>
#include <cstring>

#include "abi/operations.hpp"
#include "abi/verbs.hpp"

namespace softverbs {

namespace {

int query_device(const Context& context, ibv_device_attr& out) {
    out = context.device->attributes.orig_attr;
    return 0;
}

int query_port(Context& context, std::uint8_t number, void* out, std::size_t size) {
    return call("ibv_query_port", context, [&] {
        const Port* const port = context.device->port(number);
        if (port == nullptr) {
            return EINVAL;
        }
        copy_out(out, port->attributes, size);
        return 0;
    });
}

} // namespace

int query_port_op(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes,
                  std::size_t size) {
    return query_port(context_of(context), port, attributes, size);
}

int query_device_ex_op(ibv_context* native, const ibv_query_device_ex_input* input,
                       ibv_device_attr_ex* attributes, std::size_t size) {
    const Context& context = context_of(native);
    return call("ibv_query_device_ex", context, [&] {
        if ((input != nullptr && input->comp_mask != 0) || size < sizeof attributes->orig_attr) {
            return EINVAL;
        }
        copy_out(attributes, context.device->attributes, size);
        attributes->comp_mask = 0;
        return 0;
    });
}

int query_rt_values_op(ibv_context* context, ibv_values_ex* values) {
    const Device& device = *context_of(context).device;
    return call("ibv_query_rt_values_ex", context_of(context), [&] {
        if (!has_clock(device)) {
            return EOPNOTSUPP;
        }
        // raw_clock is the current time of the clock of completion timestamps. As in the mlx5
        // provider, tv_nsec contains the whole time in ticks, and tv_sec is 0.
        if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
            values->raw_clock = {0, static_cast<long>(clock_ticks(device))};
        }
        values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
        return 0;
    });
}

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY int ibv_query_device(ibv_context* native, ibv_device_attr* attributes) {
    return verb<ibv_query_device, "ibv_query_device", query_device>(native, attributes);
}

SOFTVERBS_ENTRY int ibv_query_port(ibv_context* native, std::uint8_t port,
                                   _compat_ibv_port_attr* attributes) {
    Context* const context = ours(native);
    // Programs call this function if they were built with a verbs.h whose ibv_port_attr ends before
    // port_cap_flags2. Newer programs call query_port_op().
    return context != nullptr
               ? query_port(*context, port, attributes, offsetof(ibv_port_attr, port_cap_flags2))
               : forward<ibv_query_port>("ibv_query_port", native, port, attributes);
}

SOFTVERBS_ENTRY int ibv_query_pkey(ibv_context* native, std::uint8_t port_number, int index,
                                   __be16* pkey) {
    const Context* const context = ours(native);
    if (context == nullptr) {
        return forward<ibv_query_pkey>("ibv_query_pkey", native, port_number, index, pkey);
    }
    const int error = call("ibv_query_pkey", *context, [&] {
        const Port* const port = context->device->port(port_number);
        if (port == nullptr || index < 0 || static_cast<std::size_t>(index) >= port->pkeys.size()) {
            return EINVAL;
        }
        *pkey = htobe16(port->pkeys[static_cast<std::size_t>(index)]);
        return 0;
    });
    return error != 0 ? (errno = error, -1) : 0;
}

SOFTVERBS_ENTRY int ibv_get_pkey_index(ibv_context* native, std::uint8_t port_number, __be16 pkey) {
    const Context* const context = ours(native);
    if (context == nullptr) {
        return forward<ibv_get_pkey_index>("ibv_get_pkey_index", native, port_number, pkey);
    }
    const Guard guard;
    const Port* const port = context->device->port(port_number);
    if (port == nullptr) {
        return -1;
    }
    const auto found = std::ranges::find(port->pkeys, be16toh(pkey));
    return found == port->pkeys.end() ? -1 : static_cast<int>(found - port->pkeys.begin());
}
