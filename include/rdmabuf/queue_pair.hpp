// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <optional>
#include <span>

#include <rdmabuf/access.hpp>
#include <rdmabuf/address_handle.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_batch.hpp>
#include <rdmabuf/work_list.hpp>
#include <rdmabuf/work_request.hpp>
#include <rdmabuf/xrc_domain.hpp>

namespace rdmabuf {

class PreparedQueuePair;

namespace detail {
struct RDMABUF_EXPORT DestroyQp {
    static constexpr const char* name = "ibv_destroy_qp";
    static int call(ibv_qp* qp) noexcept;
};
using QueuePairHandle =
    unique_handle<ibv_qp, DestroyQp, ProtectionDomain, CompletionQueue, CompletionQueue,
                  SharedReceiveQueueHandle, std::optional<XrcDomain>>;
} // namespace detail

/// Whether a queue pair gets the ibv_wr_* interface (QueuePair::batch()).
enum class ExtendedInterface : std::uint8_t {
    off,
    /// If the provider has it.
    automatic,
    required,
};

struct QueuePairOptions {
    CompletionQueue send_cq;
    CompletionQueue recv_cq;
    QueuePairType type = QueuePairType::reliable_connected;

    /// Requests that may be outstanding. The device may round up.
    std::uint32_t max_send_wr = 128;
    std::uint32_t max_recv_wr = 128;
    std::uint32_t max_send_sge = 1;
    std::uint32_t max_recv_sge = 1;
    /// Maximum number of bytes of inline data in a request (SendFlags::inline_data); 0: none.
    std::uint32_t max_inline_data = 0;
    /// Every send-side request leaves a completion, whatever its flags.
    bool signal_all = false;
    /// Takes receives from here instead of a queue of its own.
    const SharedReceiveQueue* srq = nullptr;
    /// The domain of a queue pair of the type xrc_receive, which needs one; nullptr for other
    /// types.
    const XrcDomain* xrc_domain = nullptr;
    ExtendedInterface extended = ExtendedInterface::automatic;
    /// Lets libmlx5 deliver small received data in the completion entry (scatter-to-CQE), which
    /// saves the NIC a write. The CPU then copies up to 64 bytes to the address in the request
    /// while the completion is polled: receives, and with signal_all also the results of reads and
    /// atomics. Set it only if all these requests use host memory whose iova is its address. Other
    /// memory, such as that of a GPU or of the NIC, would crash the program or corrupt memory.
    /// Devices of other drivers ignore it. See mlx5dv_create_qp(3).
    bool scatter_to_cqe = false;
    /// Lets the device place data and consume receives out of order, which uses several network
    /// paths at once (MLX5DV_QP_CREATE_OOO_DP). Completions stay in order, and each has the wr_id
    /// of the receive that it consumed. A write must not rely on being visible after an earlier
    /// one. Both sides of a connection must set it. Creating fails with EOPNOTSUPP on devices other
    /// than mlx5, and where the device or the kernel does not have it. See mlx5dv_create_qp(3).
    bool out_of_order_placement = false;
    /// IBV_QP_EX_WITH_* bits of the operations that batch() needs in addition to sends, writes,
    /// reads and atomics: LOCAL_INV, BIND_MW, SEND_WITH_INV, ATOMIC_WRITE. A provider without one
    /// of them gives the queue pair no ibv_wr_* interface; with ExtendedInterface::required,
    /// creating fails.
    std::uint64_t batch_operations = 0;

    /// What peers may do through this queue pair, where the memory region allows it too. By default
    /// all that the device can. SRD queue pairs cannot restrict peers: leave it empty.
    std::optional<Access> access = std::nullopt;
    std::uint8_t port = 1;
    /// Entry of the port's GID table; by default Context::best_gid.
    std::optional<std::uint8_t> gid_index = std::nullopt;
    std::uint16_t pkey_index = 0;
    /// By default the port's active MTU; the peer's, if smaller.
    std::optional<ibv_mtu> mtu = std::nullopt;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    /// The next three members have the same meaning as in AddressHandleOptions.
    std::uint32_t flow_label = 0;
    ibv_rate static_rate = IBV_RATE_MAX;
    std::uint8_t src_path_bits = 0;
    /// Reads and atomics under way at once as initiator and as target, held to the device's limits.
    std::uint8_t max_rd_atomic = 16;
    std::uint8_t max_dest_rd_atomic = 16;

    /// How long to wait for an acknowledgement: 4.096 us * 2^timeout; 0 waits for ever.
    std::uint8_t timeout = 14;
    /// Then how often to try again, up to 7, before IBV_WC_RETRY_EXC_ERR.
    std::uint8_t retry_count = 7;
    /// How often to try again when the peer has no receive posted; 7 is for ever. On SRD queue
    /// pairs other values need SrdAttributes::rnr_retry.
    std::uint8_t rnr_retry = 7;
    /// How long a peer is told to wait then: an index into the table of ibv_modify_qp(3); 12 is
    /// 0.64 ms.
    std::uint8_t min_rnr_timer = 12;
    /// UD and SRD only: the Q_Key that requests of peers must carry.
    std::uint32_t qkey = 0x11111111;
};

/// The maximum rate at which a queue pair sends. ibv_modify_qp_rate_limit(3).
struct RateLimit {
    /// 0 for no limit.
    std::uint32_t kilobits_per_second = 0;
    /// Maximum number of bytes that the device sends at once at full speed; 0 for the device's
    /// default.
    std::uint32_t max_burst_size = 0;
    /// Typical size of a packet in bytes, which makes the limit more exact; 0 if it is not known.
    std::uint16_t typical_packet_size = 0;
};

/// A queue pair that can send. Posting is noexcept, allocates nothing and only makes the C call.
/// The Status is the int of ibv_post_send(3): ENOMEM when the queue is full, EINVAL for a bad
/// request. Moves only; holds its protection domain, completion queues and shared receive queue.
///
/// The noexcept functions must not be called after close(), release() or a move: an assertion where
/// assertions are enabled, undefined where they are not. The other functions throw Error EBADF
/// then.
class RDMABUF_EXPORT QueuePair {
  public:
    /// Makes the first half of a connection: see PreparedQueuePair.
    [[nodiscard]] static PreparedQueuePair prepare(const ProtectionDomain& pd,
                                                   const QueuePairOptions& options);

    /// Uses a connected queue pair that somebody else destroys: for transports that bring their
    /// own.
    /// @param extended  the same queue pair's ibv_wr_* interface, if it was created with one
    [[nodiscard]] static QueuePair borrow(ibv_qp* qp, ibv_qp_ex* extended = nullptr);

    /// The data of @p local goes into the receive the peer posted first.
    [[gnu::always_inline]] Status post_send(std::span<const ibv_sge> local,
                                            WorkOptions options = {}) const noexcept {
        return post_one(make_send(local, options));
    }
    [[gnu::always_inline]] Status post_send(const ibv_sge& local,
                                            WorkOptions options = {}) const noexcept {
        return post_send(std::span(&local, 1), options);
    }
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
    /// Sends a datagram (UD) or a message of an SRD queue pair.
    [[gnu::always_inline]] Status post_send_to(std::span<const ibv_sge> local, Destination to,
                                               WorkOptions options = {}) const noexcept {
        return post_one(make_send_to(local, to, options));
    }
    [[gnu::always_inline]] Status post_send_to(const ibv_sge& local, Destination to,
                                               WorkOptions options = {}) const noexcept {
        return post_send_to(std::span(&local, 1), to, options);
    }
    /// Sends a datagram with immediate data (UD). @param immediate  in host byte order
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
    /// Sends a message that invalidates @p rkey at the peer. See make_send_inv.
    [[gnu::always_inline]] Status post_send_inv(std::span<const ibv_sge> local, std::uint32_t rkey,
                                                WorkOptions options = {}) const noexcept {
        return post_one(make_send_inv(local, rkey, options));
    }
    [[gnu::always_inline]] Status post_send_inv(const ibv_sge& local, std::uint32_t rkey,
                                                WorkOptions options = {}) const noexcept {
        return post_send_inv(std::span(&local, 1), rkey, options);
    }
    /// Invalidates @p rkey of a local memory window. See make_local_inv.
    [[gnu::always_inline]] Status post_local_inv(std::uint32_t rkey,
                                                 WorkOptions options = {}) const noexcept {
        return post_one(make_local_inv(rkey, options));
    }
    /// Binds a memory window of either type to a part of a region. On success, window.rkey() is the
    /// new rkey, which is valid once the request has completed. The completion has the opcode
    /// IBV_WC_BIND_MW. RC and UC.
    /// @return as post_send(); EINVAL for a region without Access::memory_window_bind, which other
    ///         providers report in the completion as IBV_WC_MW_BIND_ERR
    Status post_bind(MemoryWindow& window, const MemoryWindowBinding& binding,
                     WorkOptions options = {}) const noexcept;
    /// Writes to memory of the peer @p to (SRD). The request is posted by the ibv_wr_* interface.
    /// @return as the other functions, and EOPNOTSUPP if the queue pair is not extended() or, with
    ///         libefa, if the device has no RDMA writes (SrdAttributes::rdma_write)
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
    /// As post_write_to(), and completes a receive at the peer after the data is in place.
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
    /// Reads from memory of the peer @p from (SRD); otherwise as post_write_to(). The device needs
    /// SrdAttributes::rdma_read.
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
    /// Where the next message goes. Datagrams (UD) need 40 bytes in front for the GRH; messages of
    /// SRD queue pairs do not.
    [[gnu::always_inline]] Status post_recv(std::span<const ibv_sge> local,
                                            std::uint64_t wr_id = 0) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        ibv_recv_wr request = make_recv(local, wr_id);
        ibv_recv_wr* failed; // NOLINT(*-init-variables): verbs sets it, or nobody reads it
        return Status(ibv_post_recv(handle_.get(), &request, &failed));
    }
    [[gnu::always_inline]] Status post_recv(const ibv_sge& local,
                                            std::uint64_t wr_id = 0) const noexcept {
        return post_recv(std::span(&local, 1), wr_id);
    }
    [[gnu::always_inline]] Status post_write(std::span<const ibv_sge> local, RemoteAddress remote,
                                             WorkOptions options = {}) const noexcept {
        return post_one(make_write(local, remote, options));
    }
    [[gnu::always_inline]] Status post_write(const ibv_sge& local, RemoteAddress remote,
                                             WorkOptions options = {}) const noexcept {
        return post_write(std::span(&local, 1), remote, options);
    }
    /// @param immediate  in host byte order; takes a receive at the peer
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
    /// Eight bytes; see make_compare_swap.
    [[gnu::always_inline]] Status post_compare_swap(const ibv_sge& local, RemoteAddress remote,
                                                    std::uint64_t expected, std::uint64_t swap,
                                                    WorkOptions options = {}) const noexcept {
        return post_one(make_compare_swap(std::span(&local, 1), remote, expected, swap, options));
    }
    /// Eight bytes; see make_fetch_add.
    [[gnu::always_inline]] Status post_fetch_add(const ibv_sge& local, RemoteAddress remote,
                                                 std::uint64_t addend,
                                                 WorkOptions options = {}) const noexcept {
        return post_one(make_fetch_add(std::span(&local, 1), remote, addend, options));
    }

    /// Posts a list. On failure, the requests before @p failed are posted, and the others are not.
    /// @return as post_send(), and E2BIG when more requests were added than the list has room for.
    ///         Nothing is posted then.
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

    /// Whether batch() can be used: the provider has ibv_wr_* and the options did not rule it out.
    [[nodiscard]] bool extended() const noexcept { return extended_ != nullptr; }
    /// Opens a batch of the ibv_wr_* interface. Only where extended(); one at a time per queue
    /// pair.
    [[nodiscard, gnu::always_inline]] WorkBatch batch() const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        assert(extended_ != nullptr && "this queue pair has no ibv_wr_* interface");
        return WorkBatch(extended_);
    }

    /// 24 bits; what completions carry in qp_num.
    [[nodiscard]] std::uint32_t number() const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        return handle_->qp_num;
    }
    /// A borrowed queue pair of a driver type (IBV_QPT_DRIVER) is taken for SRD.
    [[nodiscard]] QueuePairType type() const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        return static_cast<QueuePairType>(handle_->qp_type);
    }
    /// @throws Error EBADF when this was closed or moved from.
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("QueuePair::protection_domain", "QueuePair");
    }
    /// Asks the device. ibv_query_qp(3).
    [[nodiscard]] ibv_qp_state state() const;
    /// Queries attributes of the queue pair from the device. ibv_query_qp(3).
    /// @param mask  IBV_QP_* bits of the members to query. Other members are undefined. By default
    ///              all that RC, UC and UD queue pairs have.
    /// @throws Error what ibv_query_qp(3) says. EFA returns EOPNOTSUPP for a mask with attributes
    ///         that its queue pairs do not have, such as IBV_QP_AV.
    [[nodiscard]] ibv_qp_attr attributes(int mask = all_attributes) const;
    static constexpr int all_attributes =
        IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
        IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
        IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
        IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CAP | IBV_QP_DEST_QPN;
    /// Modifies attributes of a connected queue pair. For example, IBV_QP_MIN_RNR_TIMER changes
    /// min_rnr_timer. ibv_modify_qp(3) lists the attributes that may change in each state.
    /// @param mask  IBV_QP_* bits of the members of @p attributes to apply
    /// @throws Error what ibv_modify_qp(3) says: EINVAL for an attribute that must not change in
    ///         this state, or for an invalid value. The attributes are unchanged then.
    void modify(ibv_qp_attr attributes, int mask);
    /// Limits the rate at which the queue pair sends. ibv_modify_qp_rate_limit(3);
    /// DeviceAttributes::native.packet_pacing_caps has the limits and the queue pair types.
    /// @throws Error EOPNOTSUPP where the provider has no rate limits; EINVAL for a rate outside
    /// the
    ///         device's limits (the hint has them), or a queue pair type without rate limits
    void set_rate_limit(const RateLimit& limit);
    /// The ECE options that the device uses for this connection. See PreparedQueuePair::set_ece().
    [[nodiscard]] ibv_ece ece() const;
    /// Moves to the error state: everything outstanding completes with IBV_WC_WR_FLUSH_ERR.
    void abort();

    /// Posts a request to a shared receive queue of the peer (xrc_send). Sends, and writes with
    /// immediate data, take a receive of this queue.
    /// @param request     of a make_ function, such as make_send()
    /// @param srq_number  SharedReceiveQueue::number() at the peer
    [[gnu::always_inline]] Status post_to_srq(ibv_send_wr request,
                                              std::uint32_t srq_number) const noexcept {
        request.qp_type.xrc.remote_srqn = srq_number;
        return post_one(std::move(request));
    }

    [[nodiscard]] ibv_qp* native() const noexcept { return handle_.get(); }
    /// The caller destroys it from now on.
    [[nodiscard]] ibv_qp* release() noexcept { return handle_.release(); }
    /// @throws Error what ibv_destroy_qp(3) says; it stays owned.
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

/// A queue pair in the INIT state: it can take receives, has an address to give to a peer, and
/// becomes a QueuePair by connecting. Make both, exchange addresses, connect both:
///
///     auto prepared = QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq});
///     bootstrap.send(prepared.address().encode());
///     QueuePair qp = std::move(prepared).connect(peer);
class RDMABUF_EXPORT PreparedQueuePair {
  public:
    /// @throws Error EINVAL for a limit above the device's (the hint names it), for a port that is
    /// not
    ///         active or does not exist; EADDRNOTAVAIL when the port has no GID; EOPNOTSUPP for a
    ///         type, or an extended interface that is required, which the provider lacks, and for
    ///         an access of an SRD queue pair; ENOMEM.
    PreparedQueuePair(const ProtectionDomain& pd, const QueuePairOptions& options);

    /// What the peer needs.
    [[nodiscard]] const QueuePairAddress& address() const noexcept { return address_; }

    /// Receives may be posted from now on, and should be before the peer can send.
    [[gnu::always_inline]] Status post_recv(std::span<const ibv_sge> local,
                                            std::uint64_t wr_id = 0) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        ibv_recv_wr request = make_recv(local, wr_id);
        ibv_recv_wr* failed; // NOLINT(*-init-variables): verbs sets it, or nobody reads it
        return Status(ibv_post_recv(handle_.get(), &request, &failed));
    }
    [[gnu::always_inline]] Status post_recv(const ibv_sge& local,
                                            std::uint64_t wr_id = 0) const noexcept {
        return post_recv(std::span(&local, 1), wr_id);
    }

    /// The ECE options (enhanced connection establishment) that the device supports for this queue
    /// pair. They belong to one vendor: `options` of different vendor_ids cannot be compared.
    /// ibv_query_ece(3).
    /// @throws Error EOPNOTSUPP where the provider has no ECE.
    [[nodiscard]] ibv_ece ece() const;
    /// Sets the ECE options to use, before connect(). ibv_set_ece(3). One side begins: it sends its
    /// ece() with its address(). The other side, if the vendor_ids are equal, sets these options,
    /// connects, and sends back QueuePair::ece(), which are the accepted options, with its
    /// address(). The first side then sets the accepted options and connects. Without set_ece(), a
    /// connection uses no options.
    /// @throws Error EOPNOTSUPP where the provider has no ECE, or if vendor_id is 0; EINVAL if
    ///         vendor_id is that of another vendor
    void set_ece(const ibv_ece& ece);

    /// Connects to @p peer (RC, UC, XRC): INIT to RTR to RTS. The peer of xrc_send is xrc_receive.
    /// @throws Error EPROTO when the peer's type differs, EINVAL for UD and SRD queue pairs, and
    /// what
    ///         ibv_modify_qp(3) says (ETIMEDOUT, EHOSTUNREACH: the peer's GID does not resolve).
    ///         The queue pair stays here then, and can only be destroyed.
    [[nodiscard]] QueuePair connect(const QueuePairAddress& peer) &&;
    /// Makes a UD or SRD queue pair ready to send to any peer. @throws Error EINVAL for other
    /// types.
    [[nodiscard]] QueuePair activate() &&;
    /// For connection managers that move the state themselves (librdmacm): takes the queue pair as
    /// connected. @throws Error EINVAL when the device says that it is not ready to send.
    [[nodiscard]] QueuePair assume_connected() &&;

    /// What connecting needs of the options, for those who connect by other means than connect().
    struct Connection {
        AddressHandleOptions path;
        std::uint8_t timeout, retry_count, rnr_retry, min_rnr_timer, max_rd_atomic;
    };
    [[nodiscard]] const Connection& connection() const noexcept { return connection_; }

    /// @throws Error EBADF when this was closed or moved from.
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("PreparedQueuePair::protection_domain",
                                               "PreparedQueuePair");
    }
    [[nodiscard]] ibv_qp* native() const noexcept { return handle_.get(); }
    /// The caller destroys it from now on.
    [[nodiscard]] ibv_qp* release() noexcept { return handle_.release(); }
    /// @throws Error what ibv_destroy_qp(3) says; it stays owned.
    void close() { detail::close_handle(handle_); }

  private:
    void find_address(const QueuePairOptions& options);
    void initialise(const QueuePairOptions& options, Access access);
    void ready_to_receive(const QueuePairAddress& peer);
    void ready_to_send(const QueuePairAddress& peer);

    detail::QueuePairHandle handle_;
    ibv_qp_ex* extended_ = nullptr;
    QueuePairAddress address_;
    Connection connection_{};
};

inline PreparedQueuePair QueuePair::prepare(const ProtectionDomain& pd,
                                            const QueuePairOptions& options) {
    return {pd, options};
}

} // namespace rdmabuf
