// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <algorithm>

#include "abi/verbs.hpp"

namespace softverbs {

namespace {

bool is_empty(const ibv_gid_entry& entry) {
    return std::ranges::all_of(entry.gid.raw, [](std::uint8_t byte) { return byte == 0; });
}

/// Copies the entry @p index of the GID table of a port to @p out. Returns 0, EINVAL if the port or
/// index does not exist, or ENODATA if the entry is empty.
int find_gid(const Context& context, std::uint32_t port_number, std::uint32_t index,
             ibv_gid_entry& out) {
    const Port* const port = context.device->port(port_number);
    if (port == nullptr || index >= static_cast<std::uint32_t>(port->attributes.gid_tbl_len)) {
        return EINVAL;
    }
    if (index >= port->gids.size() || is_empty(port->gids[index])) {
        return ENODATA;
    }
    out = port->gids[index];
    return 0;
}

/// Copies the GID entries of all ports to the array @p out, whose elements have @p size bytes.
/// Returns the number of entries, or -EINVAL if there are more than @p max_entries.
ssize_t copy_table(const Context& context, void* out, std::size_t max_entries, std::size_t size) {
    auto* next = static_cast<std::byte*>(out);
    std::size_t count = 0;
    for (const Port& port : context.device->ports) {
        for (const ibv_gid_entry& entry : port.gids) {
            if (is_empty(entry)) {
                continue;
            }
            if (count == max_entries) {
                return -EINVAL;
            }
            copy_out(next, entry, size);
            next += size;
            ++count;
        }
    }
    return static_cast<ssize_t>(count);
}

/// Implements the verbs that return -1 on failure. For an empty entry, returns 0 and does not
/// change @p out.
int query_entry(std::string_view verb, const Context& context, std::uint32_t port,
                std::uint32_t index, ibv_gid_entry& out) {
    const int error = call(verb, context, [&] { return find_gid(context, port, index, out); });
    return error != 0 && error != ENODATA ? (errno = error, -1) : 0;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY int ibv_query_gid(ibv_context* native, std::uint8_t port, int index, ibv_gid* gid) {
    const Context* const context = ours(native);
    if (context == nullptr) {
        return forward<ibv_query_gid>("ibv_query_gid", native, port, index, gid);
    }
    ibv_gid_entry entry{};
    // A negative index becomes a number that is larger than each table.
    const int result =
        query_entry("ibv_query_gid", *context, port, static_cast<std::uint32_t>(index), entry);
    if (result == 0) {
        *gid = entry.gid;
    }
    return result;
}

SOFTVERBS_ENTRY int _ibv_query_gid_ex(ibv_context* native, std::uint32_t port, std::uint32_t index,
                                      ibv_gid_entry* out, std::uint32_t flags, std::size_t size) {
    const Context* const context = ours(native);
    if (context == nullptr) {
        return forward<_ibv_query_gid_ex>("_ibv_query_gid_ex", native, port, index, out, flags,
                                          size);
    }
    return call("ibv_query_gid_ex", *context, [&] {
        if (flags != 0) {
            return EOPNOTSUPP;
        }
        ibv_gid_entry entry{};
        const int error = find_gid(*context, port, index, entry);
        if (error == 0) {
            copy_out(out, entry, size);
        }
        return error;
    });
}

SOFTVERBS_ENTRY ssize_t _ibv_query_gid_table(ibv_context* native, ibv_gid_entry* entries,
                                             std::size_t max_entries, std::uint32_t flags,
                                             std::size_t size) {
    const Context* const context = ours(native);
    if (context == nullptr) {
        return forward<_ibv_query_gid_table>("_ibv_query_gid_table", native, entries, max_entries,
                                             flags, size);
    }
    const Guard guard;
    if (const int error = enter("ibv_query_gid_table", *context); error != 0) {
        return -error;
    }
    if (flags != 0) {
        return -EOPNOTSUPP;
    }
    // As in the kernel, return EINVAL for an output array without elements, even if the device has
    // no GIDs.
    return max_entries == 0 ? -EINVAL : copy_table(*context, entries, max_entries, size);
}

// The values that ibv_query_gid_type() stores in its last argument. libibverbs exports this
// function for ibv_devinfo, but verbs.h does not declare it.
enum class GidTypeOfSysfs { ib_or_roce_v1, roce_v2 };
SOFTVERBS_ENTRY int ibv_query_gid_type(ibv_context* native, std::uint8_t port, unsigned index,
                                       GidTypeOfSysfs* type) {
    const Context* const context = ours(native);
    if (context == nullptr) {
        return forward<ibv_query_gid_type>("ibv_query_gid_type", native, port, index, type);
    }
    ibv_gid_entry entry{};
    const int result = query_entry("ibv_query_gid_ex", *context, port, index, entry);
    if (result == 0) {
        *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? GidTypeOfSysfs::roce_v2
                                                       : GidTypeOfSysfs::ib_or_roce_v1;
    }
    return result;
}
