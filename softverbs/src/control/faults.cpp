// SPDX-License-Identifier: BSD-3-Clause
#include "control/faults.hpp"

#include <errno.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "control/text.hpp"
#include "objects/device.hpp"

namespace softverbs {

namespace {

/// The verbs and rdma_cm functions that destroy no object and that softverbs_fail_call() can make
/// fail.
constexpr auto verbs = std::to_array<std::string_view>({
    "ibv_advise_mr",
    "ibv_alloc_dm",
    "ibv_alloc_mw",
    "ibv_alloc_null_mr",
    "ibv_alloc_parent_domain",
    "ibv_alloc_pd",
    "ibv_alloc_td",
    "ibv_attach_mcast",
    "ibv_bind_mw",
    "ibv_create_ah",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "ibv_create_cq_ex",
    "ibv_create_qp",
    "ibv_create_qp_ex",
    "ibv_create_srq",
    "ibv_create_srq_ex",
    "ibv_detach_mcast",
    "ibv_dm_export_dmabuf_fd",
    "ibv_get_async_event",
    "ibv_get_cq_event",
    "ibv_get_device_list",
    "ibv_import_device",
    "ibv_import_dm",
    "ibv_import_mr",
    "ibv_import_pd",
    "ibv_memcpy_from_dm",
    "ibv_memcpy_to_dm",
    "ibv_modify_cq",
    "ibv_modify_qp",
    "ibv_modify_qp_rate_limit",
    "ibv_modify_srq",
    "ibv_open_device",
    "ibv_open_qp",
    "ibv_open_xrcd",
    "ibv_post_recv",
    "ibv_post_send",
    "ibv_post_srq_ops",
    "ibv_post_srq_recv",
    "ibv_query_device",
    "ibv_query_device_ex",
    "ibv_query_gid",
    "ibv_query_gid_ex",
    "ibv_query_gid_table",
    "ibv_query_pkey",
    "ibv_query_port",
    "ibv_query_qp",
    "ibv_query_rt_values_ex",
    "ibv_query_srq",
    "ibv_reg_dm_mr",
    "ibv_reg_dmabuf_mr",
    "ibv_reg_mr",
    "ibv_req_notify_cq",
    "ibv_rereg_mr",
    "ibv_resize_cq",
    "ibv_wr_complete",
    "rdma_accept",
    "rdma_bind_addr",
    "rdma_connect",
    "rdma_create_event_channel",
    "rdma_create_id",
    "rdma_disconnect",
    "rdma_get_cm_event",
    "rdma_init_qp_attr",
    "rdma_join_multicast",
    "rdma_listen",
    "rdma_migrate_id",
    "rdma_notify",
    "rdma_reject",
    "rdma_resolve_addr",
    "rdma_resolve_route",
    "rdma_set_option",
});

/// The verbs and rdma_cm functions that destroy an object, leave a multicast group, or free memory,
/// and that softverbs_fail_call() makes fail only if the test names them.
constexpr auto destroying_verbs = std::to_array<std::string_view>({
    "ibv_close_device",
    "ibv_close_xrcd",
    "ibv_dealloc_td",
    "ibv_dealloc_mw",
    "ibv_dealloc_pd",
    "ibv_dereg_mr",
    "ibv_destroy_ah",
    "ibv_destroy_comp_channel",
    "ibv_destroy_cq",
    "ibv_destroy_qp",
    "ibv_destroy_srq",
    "ibv_free_dm",
    "rdma_destroy_id",
    "rdma_leave_multicast",
});

bool destroys(std::string_view name) noexcept {
    return std::ranges::find(destroying_verbs, name) != destroying_verbs.end();
}

bool is_verb(std::string_view name) noexcept {
    return std::ranges::find(verbs, name) != verbs.end() || destroys(name);
}

struct ErrnoName {
    std::string_view name;
    int value;
};

#define NAMED(macro) \
    { #macro, macro }
/// The errnos of verbs, of rdma_cm, and of the system calls that they make. The C library has no
/// function that returns the value for a name (strerrorname_np(3) does the opposite).
constexpr ErrnoName errno_names[] = {
    NAMED(EPERM),        NAMED(ENOENT),       NAMED(EINTR),         NAMED(EIO),
    NAMED(ENXIO),        NAMED(E2BIG),        NAMED(EBADF),         NAMED(EAGAIN),
    NAMED(ENOMEM),       NAMED(EACCES),       NAMED(EFAULT),        NAMED(EBUSY),
    NAMED(EEXIST),       NAMED(ENODEV),       NAMED(EINVAL),        NAMED(ENFILE),
    NAMED(EMFILE),       NAMED(ENOTTY),       NAMED(ENOSPC),        NAMED(EROFS),
    NAMED(ERANGE),       NAMED(EDEADLK),      NAMED(ENOSYS),        NAMED(ENODATA),
    NAMED(EPROTO),       NAMED(EOVERFLOW),    NAMED(EMSGSIZE),      NAMED(EPROTONOSUPPORT),
    NAMED(EOPNOTSUPP),   NAMED(EADDRINUSE),   NAMED(EADDRNOTAVAIL), NAMED(ENETDOWN),
    NAMED(ENETUNREACH),  NAMED(ECONNABORTED), NAMED(ECONNRESET),    NAMED(ENOBUFS),
    NAMED(EISCONN),      NAMED(ENOTCONN),     NAMED(ETIMEDOUT),     NAMED(ECONNREFUSED),
    NAMED(EHOSTUNREACH), NAMED(EALREADY),     NAMED(EINPROGRESS),   NAMED(ESTALE),
    NAMED(EREMOTEIO),    NAMED(EDQUOT),       NAMED(ECANCELED)};
#undef NAMED

/// Returns the value of an errno macro such as "ENOMEM", or nullopt if @p name is unknown.
std::optional<int> parse_errno(std::string_view name) {
    for (const ErrnoName& known : errno_names) {
        if (name == known.name) {
            return known.value;
        }
    }
    return std::nullopt;
}

/// Returns whether the text for softverbs_set_faults() has an empty element, or an element with a
/// separator and nothing after it, such as "packet#1=drop:".
bool has_empty_part(std::string_view text) {
    bool empty = true;
    for (const char character : text) {
        const bool separates = std::string_view(",=#:").find(character) != std::string_view::npos;
        if (separates && empty) {
            return true;
        }
        empty = separates;
    }
    return !text.empty() && empty;
}

std::optional<Faults::PacketFault> parse_packet_fault(std::string_view text) {
    const std::string_view what = take_until(text, ':');
    if (what == "delay") {
        const auto delay = parse_number(text);
        return delay ? std::optional(Faults::PacketFault{SOFTVERBS_PACKET_DELAY, *delay})
                     : std::nullopt;
    }
    constexpr std::array<std::pair<std::string_view, softverbs_packet_fault>, 3> names{{
        {"drop", SOFTVERBS_PACKET_DROP},
        {"duplicate", SOFTVERBS_PACKET_DUPLICATE},
        {"corrupt", SOFTVERBS_PACKET_CORRUPT},
    }};
    for (const auto& [name, fault] : names) {
        if (what == name && text.empty()) {
            return Faults::PacketFault{fault, 0};
        }
    }
    return std::nullopt;
}

} // namespace

int Faults::fail_call(std::string_view verb, unsigned nth, int error) {
    std::string name(verb);
    if (!name.empty() && !name.starts_with("ibv_") && !name.starts_with("rdma_")) {
        name.insert(0, "ibv_");
    }
    if (nth == 0 || error <= 0 || (!name.empty() && !is_verb(name))) {
        return EINVAL;
    }
    calls_.push_back({std::move(name), nth, error});
    return 0;
}

int Faults::fail_packet(softverbs_packet_fault fault, unsigned nth, unsigned delay_ms) {
    if (nth == 0 || fault < SOFTVERBS_PACKET_DROP || fault > SOFTVERBS_PACKET_CORRUPT) {
        return EINVAL;
    }
    packets_.push_back({{fault, delay_ms}, nth});
    return 0;
}

int Faults::slow_down(unsigned delay_ms) {
    constexpr unsigned longest_ms = 60'000;
    if (delay_ms > longest_ms) {
        return EINVAL;
    }
    slow_ms_ = delay_ms;
    return 0;
}

int Faults::set(std::string_view text, const std::vector<std::unique_ptr<Device>>& devices) {
    Faults parsed;
    if (has_empty_part(text)) {
        return EINVAL;
    }
    while (!text.empty()) {
        std::string_view value = take_until(text, ',');
        std::string_view what = take_until(value, '=');
        if (what == "dm" && value == "exhausted") {
            parsed.dm_exhausted_ = true;
            continue;
        }
        if (what == "dmabuf" && value == "unmappable") {
            parsed.dmabufs_unmappable_ = true;
            continue;
        }
        if (const auto fault = parse_device_fault(what, value)) {
            if (fault->device >= devices.size() ||
                devices[fault->device]->port(fault->port) == nullptr) {
                return ENODEV;
            }
            parsed.device_faults_.push_back(*fault);
            continue;
        }
        if (constexpr std::string_view slow = "slow:"; what.starts_with(slow) && value.empty()) {
            const auto delay = parse_milliseconds(what.substr(slow.size()));
            if (!delay || parsed.slow_down(*delay) != 0) {
                return EINVAL;
            }
            continue;
        }
        const std::string_view verb = take_until(what, '#');
        const auto nth = what.empty() ? std::optional(1U) : parse_number(what);
        if (!nth || verb.empty()) {
            return EINVAL;
        }
        if (verb == "packet") {
            const auto fault = parse_packet_fault(value);
            if (!fault || parsed.fail_packet(fault->what, *nth, fault->delay_ms) != 0) {
                return EINVAL;
            }
            continue;
        }
        const auto error = parse_errno(value);
        if (!error || parsed.fail_call(verb, *nth, *error) != 0) {
            return EINVAL;
        }
    }
    *this = std::move(parsed);
    return 0;
}

unsigned Faults::pending() const {
    return static_cast<unsigned>(calls_.size() + packets_.size());
}

void Faults::clear() {
    *this = Faults();
}

namespace {

/// Counts an event for each planned fault to which it applies, and removes and returns the first
/// one that is due. If two planned faults are due at this event, the second one is due at the next.
template <class Planned, class Applies>
std::optional<Planned> take_due(std::vector<Planned>& planned, const Applies& applies) {
    std::optional<Planned> due;
    for (auto each = planned.begin(); each != planned.end();) {
        if (!applies(*each)) {
            ++each;
        } else if (!due && each->left == 1) {
            due = std::move(*each);
            each = planned.erase(each);
        } else {
            each->left -= each->left > 1 ? 1 : 0;
            ++each;
        }
    }
    return due;
}

} // namespace

int Faults::enter_slowly(std::string_view verb) {
    const bool named_only = destroys(verb);
    const auto due = take_due(calls_, [&](const Call& call) {
        return call.verb.empty() ? !named_only : call.verb == verb;
    });
    return due ? due->error : 0;
}

const Faults::PacketFault* Faults::packet_slowly() {
    if (const auto due = take_due(packets_, [](const Packet&) { return true; })) {
        current_ = due->fault;
        return &current_;
    }
    if (slow_ms_ != 0) {
        current_ = {SOFTVERBS_PACKET_DELAY, slow_ms_};
        return &current_;
    }
    return nullptr;
}

} // namespace softverbs
