// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/remote_region.hpp>

namespace rdmabuf {

/// How one send-side request is carried out, as a set of flags. ibv_post_send(3).
enum class SendFlags : unsigned {
    /// No completion unless it fails.
    none = 0,
    /// Starts only after earlier reads and atomics of this queue pair are done.
    fence = IBV_SEND_FENCE,
    /// Leaves a completion.
    signaled = IBV_SEND_SIGNALED,
    /// Raises a solicited event at the receiver.
    solicited = IBV_SEND_SOLICITED,
    /// The data is copied into the request: the memory may be reused at once, and needs no lkey. Up
    /// to the queue pair's max_inline_data bytes. The CPU reads the memory at sge.addr when the
    /// request is posted, so the memory must not be that of a GPU or of the NIC, and sge.addr must
    /// be its address. An assertion, where assertions are enabled, checks that the CPU can read
    /// sge.addr when the request is made; where they are not, posting such a request crashes.
    inline_data = IBV_SEND_INLINE,
};
[[nodiscard]] constexpr SendFlags operator|(SendFlags a, SendFlags b) noexcept {
    return static_cast<SendFlags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

struct WorkOptions {
    /// Comes back in the completion.
    std::uint64_t wr_id = 0;
    SendFlags flags = SendFlags::signaled;
};

/// The peer of a request on a UD or SRD queue pair: AddressHandle::destination() makes it. `ah` is
/// not owned, and must live until the request completes.
struct Destination {
    ibv_ah* ah = nullptr;
    std::uint32_t queue_pair = 0;
    std::uint32_t qkey = 0;
};

// The functions below only fill in a request: to post several in one call, add them to a WorkList.
// The scatter-gather entries are not copied: they must live until the request is posted (not until
// it completes).

namespace detail {
/// Returns whether the CPU can read the first and the last byte of each entry. Makes system calls:
/// for assertions only.
[[nodiscard]] RDMABUF_EXPORT bool cpu_can_read(std::span<const ibv_sge> entries) noexcept;

/// What the assertion about inline data requires.
[[nodiscard]] inline bool may_be_sent(std::span<const ibv_sge> local,
                                      WorkOptions options) noexcept {
    return (static_cast<unsigned>(options.flags) & IBV_SEND_INLINE) == 0 || cpu_can_read(local);
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_request(ibv_wr_opcode opcode,
                                                                  std::span<const ibv_sge> local,
                                                                  WorkOptions options) noexcept {
    assert(may_be_sent(local, options) && "the CPU cannot read the memory of inline data");
    // The last members, qp_type and the union of bind_mw and tso, are not initialised. Verbs reads
    // them only for XRC, memory windows and TSO. Writing zeros there would be a third of the
    // instructions.
    ibv_send_wr request; // NOLINT(*-init-variables,*-member-init)
    request.wr_id = options.wr_id;
    request.next = nullptr;
    // Verbs never writes through sg_list; it merely lacks the const.
    request.sg_list = const_cast<ibv_sge*>(local.data());
    request.num_sge = static_cast<int>(local.size());
    request.opcode = opcode;
    request.send_flags = static_cast<unsigned>(options.flags);
    request.imm_data = 0;
    request.wr = {};
    return request;
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_rdma(ibv_wr_opcode opcode,
                                                               std::span<const ibv_sge> local,
                                                               RemoteAddress remote,
                                                               WorkOptions options) noexcept {
    ibv_send_wr request = make_request(opcode, local, options);
    request.wr.rdma = {.remote_addr = remote.address, .rkey = remote.rkey};
    return request;
}
} // namespace detail

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send(std::span<const ibv_sge> local,
                                                               WorkOptions options = {}) noexcept {
    return detail::make_request(IBV_WR_SEND, local, options);
}

/// @param immediate  in host byte order; the receiver finds it in network byte order in imm_data
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_imm(
    std::span<const ibv_sge> local, std::uint32_t immediate, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND_WITH_IMM, local, options);
    request.imm_data = htobe32(immediate);
    return request;
}

/// A datagram; it arrives behind 40 bytes that are the receiver's GRH.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_to(
    std::span<const ibv_sge> local, Destination to, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND, local, options);
    request.wr.ud.ah = to.ah;
    request.wr.ud.remote_qpn = to.queue_pair;
    request.wr.ud.remote_qkey = to.qkey;
    return request;
}

/// A datagram with immediate data. @param immediate  in host byte order
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_imm_to(
    std::span<const ibv_sge> local, Destination to, std::uint32_t immediate,
    WorkOptions options = {}) noexcept {
    ibv_send_wr request = make_send_to(local, to, options);
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htobe32(immediate);
    return request;
}

/// A message that also invalidates an rkey at the receiver. It must be the rkey of a memory window
/// of type 2 that is bound on the receiving queue pair. The receive completion has the flag
/// IBV_WC_WITH_INV and the rkey in invalidated_rkey. RC and UC, on devices with
/// IBV_DEVICE_MEM_MGT_EXTENSIONS.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_inv(
    std::span<const ibv_sge> local, std::uint32_t rkey, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND_WITH_INV, local, options);
    request.invalidate_rkey = rkey;
    return request;
}

/// Invalidates the rkey of a local memory window of type 2 that is bound on the queue pair to which
/// this request is posted. The window is then not bound. The request has no data. Devices as for
/// make_send_inv.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_local_inv(
    std::uint32_t rkey, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_LOCAL_INV, {}, options);
    request.invalidate_rkey = rkey;
    return request;
}

/// Binds a memory window of type 2 to a part of a region. The request has no data. RC and UC.
/// @param window  the window, with its current rkey
/// @param rkey    the rkey that the window gets: the current one with another lowest byte, such as
///                ibv_inc_rkey(3) returns
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_bind(ibv_mw* window, std::uint32_t rkey,
                                                               const ibv_mw_bind_info& part,
                                                               WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_BIND_MW, {}, options);
    request.bind_mw.mw = window;
    request.bind_mw.rkey = rkey;
    request.bind_mw.bind_info = part;
    return request;
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_write(std::span<const ibv_sge> local,
                                                                RemoteAddress remote,
                                                                WorkOptions options = {}) noexcept {
    return detail::make_rdma(IBV_WR_RDMA_WRITE, local, remote, options);
}

/// @param immediate  in host byte order; takes a receive at the peer
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_write_imm(
    std::span<const ibv_sge> local, RemoteAddress remote, std::uint32_t immediate,
    WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, local, remote, options);
    request.imm_data = htobe32(immediate);
    return request;
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_read(std::span<const ibv_sge> local,
                                                               RemoteAddress remote,
                                                               WorkOptions options = {}) noexcept {
    return detail::make_rdma(IBV_WR_RDMA_READ, local, remote, options);
}

/// Puts @p swap where @p expected stands. Eight bytes at an address that is a multiple of 8; what
/// was there before comes back into @p local. Atomic against other requests to the same device, and
/// against the CPU only where the device says IBV_ATOMIC_GLOB.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_compare_swap(
    std::span<const ibv_sge> local, RemoteAddress remote, std::uint64_t expected,
    std::uint64_t swap, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_ATOMIC_CMP_AND_SWP, local, options);
    request.wr.atomic.remote_addr = remote.address;
    request.wr.atomic.rkey = remote.rkey;
    request.wr.atomic.compare_add = expected;
    request.wr.atomic.swap = swap;
    return request;
}

/// Adds @p addend to the eight bytes there; otherwise as make_compare_swap.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_fetch_add(
    std::span<const ibv_sge> local, RemoteAddress remote, std::uint64_t addend,
    WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_ATOMIC_FETCH_AND_ADD, local, options);
    request.wr.atomic.remote_addr = remote.address;
    request.wr.atomic.rkey = remote.rkey;
    request.wr.atomic.compare_add = addend;
    return request;
}

[[nodiscard, gnu::always_inline]] inline ibv_recv_wr make_recv(std::span<const ibv_sge> local,
                                                               std::uint64_t wr_id = 0) noexcept {
    return {.wr_id = wr_id,
            .next = nullptr,
            .sg_list = const_cast<ibv_sge*>(local.data()),
            .num_sge = static_cast<int>(local.size())};
}

} // namespace rdmabuf
