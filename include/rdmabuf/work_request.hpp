// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf {

/// A set of flags for one send-side request. ibv_post_send(3).
enum class SendFlags : unsigned {
    /// The request generates a completion only if it fails.
    none = 0,
    /// The request starts only after earlier reads and atomics of this queue pair are complete.
    fence = IBV_SEND_FENCE,
    /// The request generates a completion.
    signaled = IBV_SEND_SIGNALED,
    /// The request raises a solicited event at the receiver.
    solicited = IBV_SEND_SOLICITED,
    /// The data is copied into the request, so the memory needs no lkey and can be reused after
    /// posting. The maximum size is max_inline_data of the queue pair. The CPU reads the memory at
    /// sge.addr when the request is posted. So the memory must not be that of a GPU or of the NIC,
    /// and sge.addr must be its CPU address. An assertion checks that the CPU can read sge.addr; in
    /// a build without assertions, posting such a request crashes the program.
    inline_data = IBV_SEND_INLINE,
};
[[nodiscard]] constexpr SendFlags operator|(SendFlags a, SendFlags b) noexcept {
    return static_cast<SendFlags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

struct WorkOptions {
    /// An ID of the request, which the completion of the request contains.
    std::uint64_t wr_id = 0;
    SendFlags flags = SendFlags::signaled;
};

/// The destination of a request on a UD or SRD queue pair, which AddressHandle::destination()
/// returns. `ah` is not owned, and must not be destroyed before the request completes.
struct Destination {
    ibv_ah* ah = nullptr;
    std::uint32_t queue_pair = 0;
    std::uint32_t qkey = 0;
};

// The functions below fill in a request, but do not post it. A SendList or RecvList posts several
// requests in one call. The scatter-gather entries are not copied: they must be valid until the
// request is posted, but not until the request completes.

namespace detail {
/// Returns true if the CPU can read the first and the last byte of each entry. The function makes
/// system calls, so only assertions call it.
[[nodiscard]] RDMABUF_EXPORT bool cpu_can_read(std::span<const ibv_sge> entries) noexcept;

/// Returns true if the request has no inline data, or if the CPU can read the memory of the inline
/// data.
[[nodiscard]] inline bool may_be_sent(std::span<const ibv_sge> local,
                                      WorkOptions options) noexcept {
    return (static_cast<unsigned>(options.flags) & IBV_SEND_INLINE) == 0 || cpu_can_read(local);
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_request(ibv_wr_opcode opcode,
                                                                  std::span<const ibv_sge> local,
                                                                  WorkOptions options) noexcept {
    assert(may_be_sent(local, options) && "the CPU cannot read the memory of inline data");
    // The last members, qp_type and the union of bind_mw and tso, are not initialised. Verbs reads
    // them only for XRC, memory windows and TSO. Initialising them would be one third of the
    // instructions of this function.
    ibv_send_wr request; // NOLINT(*-init-variables,*-member-init)
    request.wr_id = options.wr_id;
    request.next = nullptr;
    // Verbs does not write to sg_list, although the pointer is not const.
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

/// Makes a message with immediate data.
/// @param immediate  in host byte order. The completion at the receiver contains the value in
///                   imm_data, in network byte order.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_imm(
    std::span<const ibv_sge> local, std::uint32_t immediate, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND_WITH_IMM, local, options);
    request.imm_data = htobe32(immediate);
    return request;
}

/// Makes a datagram (UD) or a message of an SRD queue pair. For UD, the first 40 bytes of the
/// receive buffer are reserved for the GRH.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_to(
    std::span<const ibv_sge> local, Destination to, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND, local, options);
    request.wr.ud.ah = to.ah;
    request.wr.ud.remote_qpn = to.queue_pair;
    request.wr.ud.remote_qkey = to.qkey;
    return request;
}

/// Makes a datagram with immediate data.
/// @param immediate  in host byte order
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_imm_to(
    std::span<const ibv_sge> local, Destination to, std::uint32_t immediate,
    WorkOptions options = {}) noexcept {
    ibv_send_wr request = make_send_to(local, to, options);
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htobe32(immediate);
    return request;
}

/// Makes a message that also invalidates an rkey at the receiver. @p rkey must be the rkey of a
/// memory window of type 2 that is bound on the receiving queue pair. The receive completion has
/// the flag IBV_WC_WITH_INV and the rkey in invalidated_rkey. RC and UC queue pairs support this
/// request, on devices with IBV_DEVICE_MEM_MGT_EXTENSIONS.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_inv(
    std::span<const ibv_sge> local, std::uint32_t rkey, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND_WITH_INV, local, options);
    request.invalidate_rkey = rkey;
    return request;
}

/// Makes a request that invalidates the rkey of a local memory window of type 2. The window must be
/// bound on the queue pair to which the request is posted; afterwards it is not bound. The request
/// has no data. The device needs IBV_DEVICE_MEM_MGT_EXTENSIONS.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_local_inv(
    std::uint32_t rkey, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_LOCAL_INV, {}, options);
    request.invalidate_rkey = rkey;
    return request;
}

/// Makes a request that binds a memory window of type 2 to a part of a region. The request has no
/// data. RC and UC queue pairs support this request.
/// @param window  the window, with its current rkey
/// @param rkey    the rkey that the window gets: its current rkey with another lowest byte, such as
///                the result of ibv_inc_rkey(3)
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

/// Makes an RDMA write with immediate data, which consumes a receive at the peer.
/// @param immediate  in host byte order
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

/// Makes an atomic compare-and-swap of the eight bytes at @p remote, whose address must be a
/// multiple of 8. If the eight bytes are equal to @p expected, they are set to @p swap. The NIC
/// writes the previous eight bytes to @p local. The operation is atomic with respect to other
/// requests to the same device. It is atomic with respect to the CPU only if the device reports
/// IBV_ATOMIC_GLOB.
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

/// Makes an atomic fetch-and-add: adds @p addend to the eight bytes at @p remote. The NIC writes
/// the previous eight bytes to @p local. The rules for alignment and atomicity are those of
/// make_compare_swap().
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
