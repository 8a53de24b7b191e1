// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// Access flags of a memory region or a memory window; combine flags with `|`. Local reads are
/// always permitted. ibv_reg_mr(3).
enum class Access : unsigned {
    local_read = 0,
    local_write = IBV_ACCESS_LOCAL_WRITE,
    remote_write = IBV_ACCESS_REMOTE_WRITE,
    remote_read = IBV_ACCESS_REMOTE_READ,
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC,
    memory_window_bind = IBV_ACCESS_MW_BIND,
    /// Work requests and peers address the region by byte offsets from its beginning instead of by
    /// virtual addresses.
    zero_based = IBV_ACCESS_ZERO_BASED,
    /// On-demand paging: the pages are not pinned. The NIC raises a page fault when it accesses a
    /// page that is not present.
    on_demand = IBV_ACCESS_ON_DEMAND,
    /// The program guarantees that the region consists of huge pages only, so the NIC can use large
    /// translations. Only together with on_demand.
    hugetlb = IBV_ACCESS_HUGETLB,
    /// IBV_ACCESS_FLUSH_GLOBAL (rdma-core 45): peers may flush their writes to global visibility,
    /// with the requests of WorkBatch::native(). Host memory only.
    flush_global = 1U << 8U,
    /// IBV_ACCESS_FLUSH_PERSISTENT (rdma-core 45): peers may flush their writes to persistent
    /// memory. Host memory only.
    flush_persistent = 1U << 9U,
    /// PCIe relaxed ordering, which is faster on some systems. The bytes of one write may become
    /// visible in any order. For host memory the flag is optional: libibverbs drops the flag if the
    /// kernel does not support it.
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

/// The access that permits all RDMA operations of peers, and local writes, which remote writes and
/// atomics require.
inline constexpr Access full_access =
    Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;

/// Returns the names of the flags joined by `|`, or "local_read" if no flag is set. Bits without a
/// name are hexadecimal.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(Access access);

} // namespace rdmabuf
