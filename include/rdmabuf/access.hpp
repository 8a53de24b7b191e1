// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// Access flags of a memory region or a memory window; combine flags with `|`. Local reads are
/// always permitted. See ibv_reg_mr(3).
enum class Access : unsigned {
    local_read = 0,
    local_write = IBV_ACCESS_LOCAL_WRITE,
    remote_write = IBV_ACCESS_REMOTE_WRITE,
    remote_read = IBV_ACCESS_REMOTE_READ,
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC,
    memory_window_bind = IBV_ACCESS_MW_BIND,
    /// Work requests and peers address a byte by its offset from the beginning of the region, not
    /// by its virtual address.
    zero_based = IBV_ACCESS_ZERO_BASED,
    /// On-demand paging: the pages are not pinned. The NIC raises a page fault when it accesses a
    /// page that is not present.
    on_demand = IBV_ACCESS_ON_DEMAND,
    /// The program guarantees that all pages of the region are huge pages. The NIC can then use
    /// larger address translations. Valid only together with on_demand.
    hugetlb = IBV_ACCESS_HUGETLB,
    /// Permits flush requests of a peer, which make the earlier writes of this peer globally
    /// visible. Peers post flush requests with WorkBatch::native(). Valid for host memory only. The
    /// value is IBV_ACCESS_FLUSH_GLOBAL of rdma-core 45.
    flush_global = 1U << 8U,
    /// Permits flush requests of a peer, which make the earlier writes of this peer persistent.
    /// Valid for host memory only. The value is IBV_ACCESS_FLUSH_PERSISTENT of rdma-core 45.
    flush_persistent = 1U << 9U,
    /// Permits PCIe relaxed ordering, which is faster on some systems. The bytes of one write may
    /// become visible in any order. For host memory the flag is optional: libibverbs drops the flag
    /// if the kernel does not support it.
    relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING,
};

[[nodiscard]] constexpr Access operator|(Access a, Access b) noexcept {
    return static_cast<Access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
[[nodiscard]] constexpr Access operator&(Access a, Access b) noexcept {
    return static_cast<Access>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
[[nodiscard]] constexpr Access operator~(Access a) noexcept {
    return static_cast<Access>(~static_cast<unsigned>(a));
}
constexpr Access& operator|=(Access& a, Access b) noexcept {
    return a = a | b;
}

/// Returns whether @p set contains every flag of @p flags.
[[nodiscard]] constexpr bool has(Access set, Access flags) noexcept {
    return (set & flags) == flags;
}
/// Returns whether @p set contains at least one flag of @p flags.
[[nodiscard]] constexpr bool has_any(Access set, Access flags) noexcept {
    return (set & flags) != Access::local_read;
}

/// All flags that a region needs for RDMA writes, RDMA reads and atomics of peers. The value
/// contains local_write, because verbs requires local_write for remote writes and remote atomics.
inline constexpr Access full_access =
    Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;

/// Returns the names of the flags joined by `|`, or "local_read" if no flag is set. All bits
/// without a name are appended together as one hexadecimal number.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(Access access);

} // namespace rdmabuf
