// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/prepared_queue_pair.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/queue_pair_options.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_batch.hpp>
#include <rdmabuf/work_list.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf {

/// The maximum rate at which a queue pair sends. ibv_modify_qp_rate_limit(3).
struct RateLimit {
    /// The maximum rate in kbit/s; 0 for no limit.
    std::uint32_t kilobits_per_second = 0;
    /// The maximum number of bytes that the device sends in one burst at full speed; 0 for the
    /// default of the device.
    std::uint32_t max_burst_size = 0;
    /// The typical size of a packet in bytes, with which the device enforces the rate limit more
    /// exactly; 0 if the size is not known.
    std::uint16_t typical_packet_size = 0;
};

/// A queue pair that is connected or activated, and can send. The functions that post a request are
/// noexcept, allocate nothing, and only make the C call. They return the errno value of
/// ibv_post_send(3) as a Status: ENOMEM if the queue is full, EINVAL for an invalid request. A
/// QueuePair can be moved but not copied. It holds its protection domain, completion queues and
/// shared receive queue.
///
/// The noexcept functions must not be called after close(), release() or a move: this is an
/// assertion failure, or undefined behaviour in a build without assertions. The other functions
/// then throw Error EBADF.
class RDMABUF_EXPORT QueuePair {
  public:
    /// Creates a queue pair in the INIT state: see PreparedQueuePair.
    [[nodiscard]] static PreparedQueuePair prepare(const ProtectionDomain& pd,
                                                   const QueuePairOptions& options) {
        return {pd, options};
    }

    /// Returns an object that uses the connected queue pair @p qp without owning it, for programs
    /// that create their own verbs objects. The owner must not destroy @p qp before this object is
    /// destroyed. protection_domain() of an XRC receive queue pair, which has no protection domain,
    /// is like a ProtectionDomain that was closed.
    /// @param extended  the ibv_qp_ex of @p qp if the queue pair was created with the ibv_wr_*
    ///                  interface; otherwise nullptr
    [[nodiscard]] static QueuePair borrow(ibv_qp* qp, ibv_qp_ex* extended = nullptr);

    /// Sends the bytes of @p local as one message. The message consumes the oldest receive that the
    /// peer has posted.
    [[gnu::always_inline]] Status post_send(std::span<const ibv_sge> local,
                                            WorkOptions options = {}) const noexcept {
        return post_one(make_send(local, options));
    }
    [[gnu::always_inline]] Status post_send(const ibv_sge& local,
                                            WorkOptions options = {}) const noexcept {
        return post_send(std::span(&local, 1), options);
    }
    /// Sends a message with immediate data.
    /// @param immediate  in host byte order
    [[gnu::always_inline]] Status post_send_imm(std::span<const ibv_sge> local,
                                                std::uint32_t immediate,
                                                WorkOptions options = {}) const noexcept {
        return post_one(make_send_imm(local, immediate, options));
    }
    [[gnu::always_inline]] Status post_send_imm(const ibv_sge& local, std::uint32_t immediate,
                                                WorkOptions options = {}) const noexcept {
        return post_send_imm(std::span(&local, 1), immediate, options);
    }
    /// Sends a message to the peer @p to. The queue pair must have the type UD or SRD.
    [[gnu::always_inline]] Status post_send_to(std::span<const ibv_sge> local, Destination to,
                                               WorkOptions options = {}) const noexcept {
        return post_one(make_send_to(local, to, options));
    }
    [[gnu::always_inline]] Status post_send_to(const ibv_sge& local, Destination to,
                                               WorkOptions options = {}) const noexcept {
        return post_send_to(std::span(&local, 1), to, options);
    }
    /// Sends a message with immediate data to the peer @p to. The queue pair must have the type UD.
    /// @param immediate  in host byte order
    [[gnu::always_inline]] Status post_send_imm_to(std::span<const ibv_sge> local, Destination to,
                                                   std::uint32_t immediate,
                                                   WorkOptions options = {}) const noexcept {
        return post_one(make_send_imm_to(local, to, immediate, options));
    }
    [[gnu::always_inline]] Status post_send_imm_to(const ibv_sge& local, Destination to,
                                                   std::uint32_t immediate,
                                                   WorkOptions options = {}) const noexcept {
        return post_send_imm_to(std::span(&local, 1), to, immediate, options);
    }
    /// Sends a message that also invalidates the peer's memory window with @p rkey. See
    /// make_send_inv().
    [[gnu::always_inline]] Status post_send_inv(std::span<const ibv_sge> local, std::uint32_t rkey,
                                                WorkOptions options = {}) const noexcept {
        return post_one(make_send_inv(local, rkey, options));
    }
    [[gnu::always_inline]] Status post_send_inv(const ibv_sge& local, std::uint32_t rkey,
                                                WorkOptions options = {}) const noexcept {
        return post_send_inv(std::span(&local, 1), rkey, options);
    }
    /// Invalidates the local memory window that has @p rkey. See make_local_inv().
    [[gnu::always_inline]] Status post_local_inv(std::uint32_t rkey,
                                                 WorkOptions options = {}) const noexcept {
        return post_one(make_local_inv(rkey, options));
    }
    /// Binds a memory window of type 1 or type 2 to a part of a region (RC and UC). On success,
    /// window.rkey() is the new rkey, which is valid after the request has completed. The
    /// completion has the opcode IBV_WC_BIND_MW.
    /// @return the same values as post_send(). For a region without Access::memory_window_bind,
    ///         some providers return EINVAL. With other providers, the request completes with
    ///         IBV_WC_MW_BIND_ERR.
    Status post_bind(MemoryWindow& window, const MemoryWindowBinding& binding,
                     WorkOptions options = {}) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        if (window.type() == MemoryWindowType::type_1) {
            ibv_mw_bind request{.wr_id = options.wr_id,
                                .send_flags = static_cast<unsigned>(options.flags),
                                .bind_info = binding.native()};
            return Status(ibv_bind_mw(handle_.get(), window.native(), &request));
        }
        const std::uint32_t rkey = window.next_rkey();
        const Status status = post_one(make_bind(window.native(), rkey, binding.native(), options));
        if (status) {
            window.set_rkey(rkey);
        }
        return status;
    }
    /// Writes to memory of the peer @p to (SRD). The request is posted with the ibv_wr_* interface.
    /// @return the same values as post_send(), and EOPNOTSUPP if extended() is false or the device
    ///         does not support RDMA writes (SrdAttributes::rdma_write)
    Status post_write_to(std::span<const ibv_sge> local, Destination to, RemoteAddress remote,
                         WorkOptions options = {}) const noexcept {
        if (extended_ == nullptr || extended_->wr_rdma_write == nullptr) {
            return Status(EOPNOTSUPP);
        }
        WorkBatch requests = batch();
        requests.write_to(local, to, remote, options);
        return requests.complete();
    }
    Status post_write_to(const ibv_sge& local, Destination to, RemoteAddress remote,
                         WorkOptions options = {}) const noexcept {
        return post_write_to(std::span(&local, 1), to, remote, options);
    }
    /// Writes to memory of the peer @p to, as post_write_to() does. When the data is in place, a
    /// receive that the peer has posted completes with @p immediate.
    /// @param immediate  in host byte order
    Status post_write_imm_to(std::span<const ibv_sge> local, Destination to, RemoteAddress remote,
                             std::uint32_t immediate, WorkOptions options = {}) const noexcept {
        if (extended_ == nullptr || extended_->wr_rdma_write_imm == nullptr) {
            return Status(EOPNOTSUPP);
        }
        WorkBatch requests = batch();
        requests.write_imm_to(local, to, remote, immediate, options);
        return requests.complete();
    }
    Status post_write_imm_to(const ibv_sge& local, Destination to, RemoteAddress remote,
                             std::uint32_t immediate, WorkOptions options = {}) const noexcept {
        return post_write_imm_to(std::span(&local, 1), to, remote, immediate, options);
    }
    /// Reads from memory of the peer @p from (SRD). The request is posted with the ibv_wr_*
    /// interface.
    /// @return the same values as post_send(), and EOPNOTSUPP if extended() is false or the device
    ///         does not support RDMA reads (SrdAttributes::rdma_read)
    Status post_read_from(std::span<const ibv_sge> local, Destination from, RemoteAddress remote,
                          WorkOptions options = {}) const noexcept {
        if (extended_ == nullptr || extended_->wr_rdma_read == nullptr) {
            return Status(EOPNOTSUPP);
        }
        WorkBatch requests = batch();
        requests.read_from(local, from, remote, options);
        return requests.complete();
    }
    Status post_read_from(const ibv_sge& local, Destination from, RemoteAddress remote,
                          WorkOptions options = {}) const noexcept {
        return post_read_from(std::span(&local, 1), from, remote, options);
    }
    /// Posts a receive. The NIC writes one message of the peer to @p local. On a UD queue pair, the
    /// first 40 bytes of @p local are reserved for the GRH. Messages of SRD queue pairs have no
    /// GRH.
    [[gnu::always_inline]] Status post_recv(std::span<const ibv_sge> local,
                                            std::uint64_t wr_id = 0) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        ibv_recv_wr request = make_recv(local, wr_id);
        ibv_recv_wr* failed; // NOLINT(*-init-variables): set by verbs on failure
        return Status(ibv_post_recv(handle_.get(), &request, &failed));
    }
    [[gnu::always_inline]] Status post_recv(const ibv_sge& local,
                                            std::uint64_t wr_id = 0) const noexcept {
        return post_recv(std::span(&local, 1), wr_id);
    }
    /// Writes the bytes of @p local to memory of the peer. The completion of an RC queue pair means
    /// that the peer's device has acknowledged the write.
    ///
    /// @p local may be empty: a write of zero bytes. Neither the address nor the rkey of @p remote
    /// is then checked, so both may be 0 (InfiniBand specification, C9-88; softverbs and Linux's
    /// rxe do so). The peer's queue pair must permit remote writes. A write of zero bytes completes
    /// successfully if the peer's queue pair still exists, and fails with IBV_WC_RETRY_EXC_ERR if
    /// the peer has ended. It consumes no receive of the peer.
    [[gnu::always_inline]] Status post_write(std::span<const ibv_sge> local, RemoteAddress remote,
                                             WorkOptions options = {}) const noexcept {
        return post_one(make_write(local, remote, options));
    }
    [[gnu::always_inline]] Status post_write(const ibv_sge& local, RemoteAddress remote,
                                             WorkOptions options = {}) const noexcept {
        return post_write(std::span(&local, 1), remote, options);
    }
    /// Writes to memory of the peer. When the data is in place, the oldest receive that the peer
    /// has posted completes with @p immediate.
    /// @param immediate  in host byte order
    [[gnu::always_inline]] Status post_write_imm(std::span<const ibv_sge> local,
                                                 RemoteAddress remote, std::uint32_t immediate,
                                                 WorkOptions options = {}) const noexcept {
        return post_one(make_write_imm(local, remote, immediate, options));
    }
    [[gnu::always_inline]] Status post_write_imm(const ibv_sge& local, RemoteAddress remote,
                                                 std::uint32_t immediate,
                                                 WorkOptions options = {}) const noexcept {
        return post_write_imm(std::span(&local, 1), remote, immediate, options);
    }
    [[gnu::always_inline]] Status post_read(std::span<const ibv_sge> local, RemoteAddress remote,
                                            WorkOptions options = {}) const noexcept {
        return post_one(make_read(local, remote, options));
    }
    [[gnu::always_inline]] Status post_read(const ibv_sge& local, RemoteAddress remote,
                                            WorkOptions options = {}) const noexcept {
        return post_read(std::span(&local, 1), remote, options);
    }
    /// Compares and swaps eight bytes of the peer's memory. See make_compare_swap().
    [[gnu::always_inline]] Status post_compare_swap(const ibv_sge& local, RemoteAddress remote,
                                                    std::uint64_t expected, std::uint64_t swap,
                                                    WorkOptions options = {}) const noexcept {
        return post_one(make_compare_swap(std::span(&local, 1), remote, expected, swap, options));
    }
    /// Adds @p addend to eight bytes of the peer's memory. See make_fetch_add().
    [[gnu::always_inline]] Status post_fetch_add(const ibv_sge& local, RemoteAddress remote,
                                                 std::uint64_t addend,
                                                 WorkOptions options = {}) const noexcept {
        return post_one(make_fetch_add(std::span(&local, 1), remote, addend, options));
    }

    /// Posts the requests of @p list with one C call. On failure, @p failed points to the first
    /// request that was not posted.
    /// @return the same values as post_send(), and E2BIG if more than @p Capacity requests were
    ///         added to @p list. In the case of E2BIG, no request is posted.
    template <std::size_t Capacity>
    [[gnu::always_inline]] Status post(SendList<Capacity>& list,
                                       ibv_send_wr*& failed) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        return list.post(
            [this](ibv_send_wr* first, ibv_send_wr** stopped) {
                return ibv_post_send(handle_.get(), first, stopped);
            },
            failed);
    }
    template <std::size_t Capacity>
    [[gnu::always_inline]] Status post(RecvList<Capacity>& list,
                                       ibv_recv_wr*& failed) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        return list.post(
            [this](ibv_recv_wr* first, ibv_recv_wr** stopped) {
                return ibv_post_recv(handle_.get(), first, stopped);
            },
            failed);
    }

    /// Returns true if the queue pair has the ibv_wr_* interface, so that batch() can be used. See
    /// QueuePairOptions::extended.
    [[nodiscard]] bool extended() const noexcept { return extended_ != nullptr; }
    /// Opens a batch of requests for the ibv_wr_* interface. Call this function only if extended()
    /// is true. A queue pair must not have more than one open batch at the same time.
    [[nodiscard, gnu::always_inline]] WorkBatch batch() const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        assert(extended_ != nullptr && "this queue pair has no ibv_wr_* interface");
        return WorkBatch(extended_);
    }

    /// Returns the queue pair number (24 bits). Completions of this queue pair contain the number
    /// in qp_num.
    [[nodiscard]] std::uint32_t number() const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        return handle_->qp_num;
    }
    /// Returns the type of the queue pair. The verbs type IBV_QPT_DRIVER is always reported as SRD.
    [[nodiscard]] QueuePairType type() const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        return static_cast<QueuePairType>(handle_->qp_type);
    }
    /// Returns the protection domain of the queue pair.
    /// @throws Error EBADF if the queue pair was closed
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("QueuePair::protection_domain", "QueuePair");
    }
    /// Queries the state of the queue pair from the device. ibv_query_qp(3).
    [[nodiscard]] ibv_qp_state state() const;
    /// Queries attributes of the queue pair from the device. ibv_query_qp(3).
    /// @param mask  the members to query, as IBV_QP_* bits; the other members of the result are
    ///              undefined. The default is all attributes that RC, UC and UD queue pairs have.
    /// @throws Error with the errno value of ibv_query_qp(3). EFA returns EOPNOTSUPP for attributes
    ///         that its queue pairs do not have, such as IBV_QP_AV.
    [[nodiscard]] ibv_qp_attr attributes(int mask = all_attributes) const;
    static constexpr int all_attributes =
        IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
        IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
        IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
        IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CAP | IBV_QP_DEST_QPN;
    /// Modifies attributes of a connected queue pair. For example, IBV_QP_MIN_RNR_TIMER changes
    /// min_rnr_timer. ibv_modify_qp(3) lists the attributes that can change in each state.
    /// @param mask  the members of @p attributes to apply, as IBV_QP_* bits
    /// @throws Error with the errno value of ibv_modify_qp(3): EINVAL for an attribute that
    ///         cannot change in this state, or for an invalid value. After an error, the attributes
    ///         are unchanged.
    void modify(ibv_qp_attr attributes, int mask);
    /// Limits the rate at which the queue pair sends. DeviceAttributes::native.packet_pacing_caps
    /// has the limits of the device and the supported queue pair types.
    /// ibv_modify_qp_rate_limit(3).
    /// @throws Error
    ///   - EOPNOTSUPP: the provider has no rate limits
    ///   - EINVAL: the rate is outside the device's limits, which the error text contains, or this
    ///     queue pair type has no rate limits
    void set_rate_limit(const RateLimit& limit);
    /// Returns the ECE options (enhanced connection establishment) that the device uses for this
    /// connection. See PreparedQueuePair::set_ece().
    [[nodiscard]] ibv_ece ece() const;
    /// Moves the queue pair to the error state. All outstanding requests complete with
    /// IBV_WC_WR_FLUSH_ERR. ibv_modify_qp(3).
    void abort();

    /// Posts a request to the send queue of this XRC queue pair. The request names a shared receive
    /// queue of the peer. Messages and writes with immediate data consume a receive of that queue.
    /// @param request     a request that was made by a make_ function, such as make_send()
    /// @param srq_number  the SharedReceiveQueue::number() of the peer's shared receive queue
    [[gnu::always_inline]] Status post_to_srq(ibv_send_wr request,
                                              std::uint32_t srq_number) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        request.qp_type.xrc.remote_srqn = srq_number;
        ibv_send_wr* failed; // NOLINT(*-init-variables): as in post_recv
        return Status(ibv_post_send(handle_.get(), &request, &failed));
    }

    [[nodiscard]] ibv_qp* native() const noexcept { return handle_.get(); }
    /// Returns the ibv_qp and gives up ownership: the caller must destroy the ibv_qp.
    [[nodiscard]] ibv_qp* release() noexcept { return handle_.release(); }
    /// Destroys the queue pair now. After an error, this object still owns the queue pair.
    /// @throws Error with the errno value of ibv_destroy_qp(3)
    void close() { detail::close_handle(handle_); }

  private:
    friend class PreparedQueuePair;
    QueuePair(detail::QueuePairHandle handle, ibv_qp_ex* extended) noexcept
        : handle_(std::move(handle)), extended_(extended) {}

    [[gnu::always_inline]] Status post_one(ibv_send_wr&& request) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        ibv_send_wr* failed; // NOLINT(*-init-variables): as in post_recv
        return Status(ibv_post_send(handle_.get(), &request, &failed));
    }

    detail::QueuePairHandle handle_;
    ibv_qp_ex* extended_;
};

} // namespace rdmabuf
