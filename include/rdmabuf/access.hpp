// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// What may be done to a memory region, as a set of flags. The local side may always read.
/// ibv_reg_mr(3).
enum class Access : unsigned {
    local_read = 0,
    local_write = IBV_ACCESS_LOCAL_WRITE,
    remote_write = IBV_ACCESS_REMOTE_WRITE,
    remote_read = IBV_ACCESS_REMOTE_READ,
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC,
    memory_window_bind = IBV_ACCESS_MW_BIND,
    /// Remote addresses count from 0 instead of from the address of the memory.
    zero_based = IBV_ACCESS_ZERO_BASED,
    /// Pages are faulted in by the NIC instead of being pinned.
    on_demand = IBV_ACCESS_ON_DEMAND,
    /// The whole region lies in huge pages, so the NIC may use large translations.
    hugetlb = IBV_ACCESS_HUGETLB,
    /// IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT (rdma-core 45): peers may flush
    /// their writes to global visibility, or to persistence. See WorkBatch::native(). Host memory
    /// only.
    flush_global = 1U << 8U,
    flush_persistent = 1U << 9U,
    /// PCIe relaxed ordering: faster on some systems, and the order in which bytes of one write
    /// become visible is no longer promised. An optional flag: kernels that do not know it ignore
    /// it for host memory.
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

/// Whether every flag of @p flags is in @p set.
[[nodiscard]] constexpr bool has(Access set, Access flags) noexcept {
    return (set & flags) == flags;
}
/// Whether any flag of @p flags is in @p set.
[[nodiscard]] constexpr bool has_any(Access set, Access flags) noexcept {
    return (set & flags) != Access::local_read;
}

/// Everything a peer can be given: local_write, remote_write, remote_read and remote_atomic.
inline constexpr Access full_access =
    Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;

/// The flag names joined by `|`, "local_read" for none, bits without a name in hexadecimal.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(Access access);

} // namespace rdmabuf
