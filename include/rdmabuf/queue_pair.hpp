// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/work_batch.hpp>
#include <rdmabuf/work_request.hpp>
#include <rdmabuf/xrc_domain.hpp>

namespace rdmabuf {

/// The transport service of a queue pair.
enum class QueuePairType : std::uint8_t {
    reliable_connected = IBV_QPT_RC,
    unreliable_connected = IBV_QPT_UC,
    unreliable_datagram = IBV_QPT_UD,
    /// Scalable Reliable Datagram (SRD) of EFA, the Elastic Fabric Adapter of Amazon, which has no
    /// RC queue pairs. An SRD queue pair exchanges messages and RDMA with any number of peers. Like
    /// a UD queue pair, an SRD queue pair is activated instead of connected, and each request names
    /// its destination (AddressHandle, Destination). Each request is executed exactly once, or
    /// fails.
    ///
    /// The order is not guaranteed. Messages to one peer arrive in any order, requests complete in
    /// any order, and a message that follows an RDMA write may arrive before the data of the write.
    /// The data of a write is in place when the write has completed, or when its immediate data has
    /// arrived. A request that fails has no effect on the queue pair or on other requests.
    ///
    /// - All requests must be signaled (EINVAL).
    /// - Messages have at most Context::max_message_size() bytes.
    /// - RDMA needs the ibv_wr_* interface and a device that supports RDMA: see
    ///   Context::srd_attributes(). The protection domain of the target must have an
    ///   AddressHandle for the initiator: without it, RDMA fails with IBV_WC_REM_OP_ERR.
    /// - SRD has no atomics, fences, solicited events, shared receive queues or access flags.
    /// - The completion of an RDMA read has the opcode IBV_WC_SEND.
    scalable_reliable_datagram = IBV_QPT_DRIVER,
    /// The queue pair at the sending side of an XRC connection: see XrcDomain. No receives can be
    /// posted to this queue pair. QueuePair::post_to_srq() posts requests to it.
    xrc_send = IBV_QPT_XRC_SEND,
    /// The queue pair at the receiving side of an XRC connection. Neither requests nor receives can
    /// be posted to this queue pair. Messages consume receives of shared receive queues.
    xrc_receive = IBV_QPT_XRC_RECV,
};
/// Returns "RC", "UC", "UD", "SRD", "XRC_SEND" or "XRC_RECV".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(QueuePairType type) noexcept;

/// The address of a queue pair: the data that a peer needs to connect to the queue pair, or to send
/// datagrams to it.
struct RDMABUF_EXPORT QueuePairAddress {
    QueuePairType type = QueuePairType::reliable_connected;
    /// The queue pair number; 24 bits.
    std::uint32_t number = 0;
    /// The packet sequence number of the first packet that the queue pair sends; 24 bits.
    std::uint32_t psn = 0;
    /// The Q_Key that requests to this UD or SRD queue pair must contain; 0 for connected queue
    /// pairs.
    std::uint32_t qkey = 0;
    /// The GID of the port. All bytes are zero on InfiniBand if QueuePairOptions::gid_index is not
    /// set: packets then have no GRH.
    Gid gid = {};
    /// The local identifier (LID) of the port; 0 on RoCE.
    std::uint16_t lid = 0;
    /// The maximum path MTU of this queue pair. A connection uses the smaller MTU of its two sides.
    ibv_mtu mtu = IBV_MTU_1024;
    /// The maximum number of the peer's outstanding RDMA reads and atomics for which this queue
    /// pair is the target.
    std::uint8_t max_dest_rd_atomic = 1;

    /// The size of the wire format in bytes.
    static constexpr std::size_t wire_size = 40;
    /// Returns the address in the wire format, which is little-endian and contains a version
    /// number.
    [[nodiscard]] std::array<std::byte, wire_size> encode() const noexcept;
    /// Decodes an address from the wire format. The bytes can come from an untrusted peer.
    /// @return the address, or an error: EMSGSIZE if the size is not wire_size, EPROTO if the bytes
    ///         are not a valid address, EPROTONOSUPPORT if the version is not supported
    [[nodiscard]] static Result<QueuePairAddress> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const QueuePairAddress&, const QueuePairAddress&) noexcept = default;
};

namespace detail {
struct RDMABUF_EXPORT DestroyAh {
    static constexpr const char* name = "ibv_destroy_ah";
    static int call(ibv_ah* ah) noexcept;
};
} // namespace detail

struct AddressHandleOptions {
    /// The number of the local port to send from; the first port is 1.
    std::uint8_t port = 1;
    /// The index of the source GID in the GID table of the local port.
    std::uint8_t gid_index = 0;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    /// The flow label of the GRH, 20 bits. For RoCE v2, drivers compute the UDP source port from
    /// the flow label. Switches use the UDP source port to choose one of several equal paths.
    std::uint32_t flow_label = 0;
    /// The maximum rate at which the NIC sends packets; IBV_RATE_MAX means no limit. For RoCE, most
    /// drivers ignore this value.
    ibv_rate static_rate = IBV_RATE_MAX;
    /// The low bits of the source LID, on InfiniBand only. If the local port has several LIDs (its
    /// LMC is not 0), these bits select one LID.
    std::uint8_t src_path_bits = 0;
};

/// An address handle, which contains the address vector of a peer's port. UD and SRD queue pairs
/// need an address handle to send. Objects can be moved but not copied. An address handle keeps its
/// protection domain alive. See ibv_create_ah(3).
class RDMABUF_EXPORT AddressHandle {
  public:
    /// Creates an address handle for the port to which the address @p peer belongs.
    /// @throws Error
    ///   - EINVAL: the device has no such port or GID index
    ///   - EHOSTUNREACH, ETIMEDOUT: the kernel cannot resolve the peer's IP address (RoCE)
    ///   - EBADF: @p pd was closed, released or moved from
    AddressHandle(const ProtectionDomain& pd, const QueuePairAddress& peer,
                  const AddressHandleOptions& options);
    /// Creates an address handle for the sender of a datagram that a UD queue pair has received, so
    /// that the program can answer. The answer goes to the queue pair `completion.src_qp`:
    ///
    ///     qp.post_send_to(region.sge(), {sender.native(), completion.src_qp, qkey});
    ///
    /// ibv_create_ah_from_wc(3).
    /// @param completion  the successful completion of the receive
    /// @param grh         the first 40 bytes of the receive buffer, which the CPU must be able to
    ///                    read. They are used only if the completion has the flag IBV_WC_GRH, as
    ///                    all completions on RoCE do.
    /// @param port        the port on which the datagram arrived
    /// @throws Error
    ///   - EINVAL: the device has no such port, or its port does not have the destination GID of
    ///     the GRH
    ///   - EBADF: @p pd was closed, released or moved from
    ///   - other errno values of the constructor
    [[nodiscard]] static AddressHandle to_sender(const ProtectionDomain& pd,
                                                 const WorkCompletion& completion,
                                                 std::span<const std::byte, 40> grh,
                                                 std::uint8_t port = 1);
    /// Takes ownership of an address handle that other code has created on @p pd.
    [[nodiscard]] static AddressHandle adopt(const ProtectionDomain& pd, ibv_ah* ah);
    /// Returns an object that uses @p ah but does not own it. For a null pointer, the result is
    /// like an object that was closed.
    [[nodiscard]] static AddressHandle borrow(ibv_ah* ah);

    /// Queries the address handle number (EFA only). When an SRD queue pair receives a message from
    /// this peer, WorkCompletion::slid contains the number. All address handles of one protection
    /// domain for the same GID have the same number. See efadv_query_ah(3).
    /// @throws Error EOPNOTSUPP if the device is not an EFA device or libefa is not loaded; EBADF
    ///         if this object was closed, released or moved from
    [[nodiscard]] std::uint16_t number() const;

    /// Returns the queue pair @p peer as the destination of a send request. @p peer must be a queue
    /// pair of the port for which this address handle was created. The result points to this
    /// address handle, which must outlive the request.
    [[nodiscard]] Destination destination(const QueuePairAddress& peer) const noexcept {
        return {.ah = native(), .queue_pair = peer.number, .qkey = peer.qkey};
    }

    [[nodiscard]] ibv_ah* native() const noexcept { return handle_.get(); }
    /// Transfers ownership to the caller, which must destroy the returned ibv_ah. If it was
    /// borrowed, only its owner may destroy it.
    [[nodiscard]] ibv_ah* release() noexcept { return handle_.release(); }
    /// Destroys the address handle.
    /// @throws Error with the errno of ibv_destroy_ah(3); this object then still owns the handle.
    void close() { detail::close_handle(handle_); }

  private:
    using Handle = detail::unique_handle<ibv_ah, detail::DestroyAh, ProtectionDomain>;
    explicit AddressHandle(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

namespace detail {
/// Returns the address vector with which packets reach @p peer. ibv_create_ah() takes the result,
/// and ibv_modify_qp() takes it when a queue pair is connected.
[[nodiscard]] RDMABUF_EXPORT ibv_ah_attr make_ah_attr(const QueuePairAddress& peer,
                                                      const AddressHandleOptions& options) noexcept;
} // namespace detail

/// Selects whether a queue pair has the ibv_wr_* interface, which QueuePair::batch() needs.
enum class ExtendedInterface : std::uint8_t {
    off,
    /// The queue pair gets the ibv_wr_* interface if the provider supports it for this type and
    /// these operations.
    automatic,
    /// Creating the queue pair fails if the provider does not have the ibv_wr_* interface. For the
    /// type xrc_receive, this value is the same as `off`.
    required,
};

struct QueuePairOptions {
    CompletionQueue send_cq;
    CompletionQueue recv_cq;
    QueuePairType type = QueuePairType::reliable_connected;

    /// The maximum number of outstanding requests in the send queue. The device can round up this
    /// limit and the four limits below.
    std::uint32_t max_send_wr = 128;
    /// The maximum number of posted receives. This limit is not used if `srq` is set.
    std::uint32_t max_recv_wr = 128;
    /// The maximum number of scatter-gather entries of a request in the send queue.
    std::uint32_t max_send_sge = 1;
    /// The maximum number of scatter-gather entries of a receive. This limit is not used if `srq`
    /// is set.
    std::uint32_t max_recv_sge = 1;
    /// The maximum number of inline bytes of a request (SendFlags::inline_data); 0 for no inline
    /// data.
    std::uint32_t max_inline_data = 0;
    /// If true, every request in the send queue is signaled, even without SendFlags::signaled.
    bool signal_all = false;
    /// The shared receive queue of the queue pair; nullptr if the queue pair has its own receive
    /// queue.
    const SharedReceiveQueue* srq = nullptr;
    /// The XRC domain of the queue pair. It must be set for queue pairs of the type xrc_receive,
    /// and must be nullptr for other types.
    const XrcDomain* xrc_domain = nullptr;
    ExtendedInterface extended = ExtendedInterface::automatic;
    /// Allows libmlx5 to deliver small received data in the completion entry (scatter-to-CQE),
    /// which saves one PCIe write. When the completion is polled, the CPU copies up to 64 bytes to
    /// the address in the request. The copy is made for receives and, with `signal_all`, for the
    /// results of reads and atomics. Set this option only if all these requests use host memory
    /// whose iova is equal to its CPU address. With memory of a GPU or of the NIC, the copy would
    /// crash the program or corrupt memory. Devices of other drivers ignore this option.
    /// mlx5dv_create_qp(3).
    bool scatter_to_cqe = false;
    /// Allows the device to place data and consume receives out of order, so that packets can use
    /// several network paths at the same time (MLX5DV_QP_CREATE_OOO_DP). Completions stay in order,
    /// and each has the wr_id of the receive that it consumed. The data of an earlier write can
    /// become visible after the data of a later write. Both sides of a connection must set this
    /// option. Creating the queue pair fails on devices other than mlx5 (EOPNOTSUPP), and if the
    /// device, the kernel or libmlx5 does not support the option (EOPNOTSUPP or EINVAL).
    /// mlx5dv_create_qp(3).
    bool out_of_order_placement = false;
    /// The operations that batch() needs in addition to sends, writes, reads and atomics, as
    /// IBV_QP_EX_WITH_* bits: LOCAL_INV, BIND_MW, SEND_WITH_INV, ATOMIC_WRITE, FLUSH. If the
    /// provider does not support one of these operations, the queue pair gets no ibv_wr_*
    /// interface. In this case, creating the queue pair fails if `extended` is
    /// ExtendedInterface::required.
    std::uint64_t batch_operations = 0;

    /// The operations that this queue pair permits to peers. The memory region must also permit the
    /// operation. The default is all operations that the queue pair type and the device support.
    /// For SRD queue pairs, which cannot restrict peers, this option must be empty (EOPNOTSUPP).
    std::optional<Access> access = std::nullopt;
    std::uint8_t port = 1;
    /// The index of the queue pair's GID in the GID table of the port. The default is the index
    /// that Context::best_gid() returns on RoCE, no GID on InfiniBand, and index 0 for SRD queue
    /// pairs.
    std::optional<std::uint8_t> gid_index = std::nullopt;
    std::uint16_t pkey_index = 0;
    /// The maximum path MTU; the default is the active MTU of the port. A connection uses the
    /// smaller MTU of its two sides.
    std::optional<ibv_mtu> mtu = std::nullopt;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    /// The flow label of the GRH, 20 bits. See AddressHandleOptions::flow_label.
    std::uint32_t flow_label = 0;
    /// The maximum rate of the packets; IBV_RATE_MAX for no limit.
    ibv_rate static_rate = IBV_RATE_MAX;
    /// The low bits of the source LID (InfiniBand). See AddressHandleOptions::src_path_bits.
    std::uint8_t src_path_bits = 0;
    /// The maximum number of outstanding reads and atomics that this queue pair sends as the
    /// initiator. A value above the device's limit is reduced to that limit.
    std::uint8_t max_rd_atomic = 16;
    /// The maximum number of the peer's outstanding reads and atomics for which this queue pair is
    /// the target. A value above the device's limit is reduced to that limit.
    std::uint8_t max_dest_rd_atomic = 16;

    /// The time for which the NIC waits for an acknowledgement (RC, XRC): 4.096 us * 2^`timeout`.
    /// With 0, the NIC waits without limit.
    std::uint8_t timeout = 14;
    /// The maximum number of retransmissions of a request (RC, XRC): 0 to 7. The NIC retransmits
    /// when `timeout` has expired, or when the peer reports a lost packet. If no retransmission
    /// succeeds, the request fails with IBV_WC_RETRY_EXC_ERR.
    std::uint8_t retry_count = 7;
    /// The maximum number of times that the NIC repeats a request because the peer has no receive
    /// posted: 0 to 6, or 7 for no limit. If no retry succeeds, the request fails with
    /// IBV_WC_RNR_RETRY_EXC_ERR. On SRD queue pairs, values below 7 need SrdAttributes::rnr_retry.
    std::uint8_t rnr_retry = 7;
    /// The time for which the peer must wait after an RNR NAK before it repeats the request (RC,
    /// XRC). This queue pair sends an RNR NAK if it has no receive posted. The value is an index
    /// into the table of ibv_modify_qp(3); 12 means 0.64 ms.
    std::uint8_t min_rnr_timer = 12;
    /// The Q_Key that requests of peers must contain (UD and SRD only).
    std::uint32_t qkey = 0x11111111;
};

namespace detail {
struct RDMABUF_EXPORT DestroyQp {
    static constexpr const char* name = "ibv_destroy_qp";
    static int call(ibv_qp* qp) noexcept;
};
using QueuePairHandle =
    unique_handle<ibv_qp, DestroyQp, ProtectionDomain, CompletionQueue, CompletionQueue,
                  SharedReceiveQueueHandle, std::optional<XrcDomain>>;
} // namespace detail

class QueuePair;

/// A queue pair in the INIT state. connect() and activate() convert a PreparedQueuePair to a
/// QueuePair. Receives can be posted before the queue pair is connected. Both sides create a
/// PreparedQueuePair, exchange the addresses, and connect:
///
///     auto prepared = QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq});
///     bootstrap.send(prepared.address().encode());
///     QueuePair qp = std::move(prepared).connect(peer);
class RDMABUF_EXPORT PreparedQueuePair {
  public:
    /// Creates a queue pair and moves it to the INIT state.
    /// @throws Error EINVAL (with some drivers ENOMEM) for a value above the device's limit, which
    ///         the error text contains, except for max_inline_data; EINVAL for a port that is not
    ///         active or does not exist, or for an XRC domain that does not match the queue pair
    ///         type; EADDRNOTAVAIL if the port has no GID; EOPNOTSUPP if the device does not
    ///         support the queue pair type, the ibv_wr_* interface that is required, or
    ///         QueuePairOptions::access with SRD; ENOMEM if no memory is left; EBADF if @p pd or an
    ///         object in @p options was closed, released or moved from
    PreparedQueuePair(const ProtectionDomain& pd, const QueuePairOptions& options);

    /// Returns the limits that the device has granted: at least those of QueuePairOptions, and 0
    /// for a queue that this queue pair does not have. See ibv_create_qp(3).
    [[nodiscard]] const ibv_qp_cap& capacities() const noexcept { return capacities_; }
    /// Returns the address of this queue pair, which a peer needs to connect to the queue pair or
    /// to send datagrams to it.
    [[nodiscard]] const QueuePairAddress& address() const noexcept { return address_; }

    /// Posts a receive, as QueuePair::post_recv() does. Post the first receives before the address
    /// is sent to the peer, so that the peer cannot send too early.
    [[gnu::always_inline]] CallStatus post_recv(std::span<const ibv_sge> local,
                                                std::uint64_t wr_id = 0) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        ibv_recv_wr request = make_recv(local, wr_id);
        ibv_recv_wr* failed; // NOLINT(*-init-variables): set by verbs on failure
        return {Status(ibv_post_recv(handle_.get(), &request, &failed)), "ibv_post_recv"};
    }
    [[gnu::always_inline]] CallStatus post_recv(const ibv_sge& local,
                                                std::uint64_t wr_id = 0) const noexcept {
        return post_recv(std::span(&local, 1), wr_id);
    }

    /// Returns the ECE options (enhanced connection establishment) that the device supports for
    /// this queue pair. The meaning of ibv_ece::options depends on ibv_ece::vendor_id, so the
    /// options of different vendors cannot be compared. See ibv_query_ece(3).
    /// @throws Error EOPNOTSUPP if the provider has no ECE
    [[nodiscard]] ibv_ece ece() const;
    /// Sets the ECE options that the connection will use. Call set_ece() before connect(). Without
    /// set_ece(), a connection uses no ECE options. The two sides agree on the options in three
    /// steps:
    ///  - The first side sends its ece() with its address().
    ///  - If the vendor_ids are equal, the second side sets these options and connects. Then the
    ///    second side sends its address() and its QueuePair::ece(), which has the accepted options.
    ///  - The first side sets the accepted options and connects.
    ///
    /// ibv_set_ece(3).
    /// @throws Error EOPNOTSUPP if the provider has no ECE, or if vendor_id is 0; EINVAL if
    ///         vendor_id is not that of this device
    void set_ece(const ibv_ece& ece);

    /// Connects to @p peer (RC, UC, XRC): moves the queue pair from INIT to RTR to RTS. A queue
    /// pair of the type xrc_send connects to a peer of the type xrc_receive. After an error, this
    /// object still owns the queue pair. If ibv_modify_qp(3) failed, the program must destroy the
    /// queue pair, whose state is then unknown.
    /// @throws Error EPROTO if the peer's queue pair type does not match; EINVAL for UD and SRD
    ///         queue pairs; the errno value if ibv_modify_qp(3) fails, for example ETIMEDOUT or
    ///         EHOSTUNREACH if the GID of the peer cannot be resolved
    [[nodiscard]] QueuePair connect(const QueuePairAddress& peer) &&;
    /// Moves a UD or SRD queue pair to the RTS state, in which it can send to any peer.
    /// @throws Error EINVAL for queue pairs of other types; the errno value if ibv_modify_qp(3)
    ///         fails
    [[nodiscard]] QueuePair activate() &&;
    /// Converts this object to a QueuePair without changing the state of the queue pair. This
    /// function is for connection managers that change the state themselves, such as librdmacm.
    /// @throws Error EINVAL if the queue pair is not in the RTS state
    [[nodiscard]] QueuePair assume_connected() &&;

    /// The connection options of this queue pair. Code that connects the queue pair without
    /// connect(), such as librdmacm, needs these options.
    struct Connection {
        AddressHandleOptions path;
        std::uint8_t timeout, retry_count, rnr_retry, min_rnr_timer, max_rd_atomic;
    };
    [[nodiscard]] const Connection& connection() const noexcept { return connection_; }

    /// Returns the protection domain of the queue pair.
    /// @throws Error EBADF if the queue pair was closed
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("PreparedQueuePair::protection_domain",
                                               "PreparedQueuePair");
    }
    [[nodiscard]] ibv_qp* native() const noexcept { return handle_.get(); }
    /// Returns the ibv_qp and gives up ownership: the caller must destroy the ibv_qp.
    [[nodiscard]] ibv_qp* release() noexcept { return handle_.release(); }
    /// Destroys the queue pair now. After an error, this object still owns the queue pair.
    /// @throws Error with the errno value of ibv_destroy_qp(3)
    void close() { detail::close_handle(handle_); }

  private:
    void find_address(const QueuePairOptions& options);
    void initialise(const QueuePairOptions& options, Access access);
    void ready_to_receive(const QueuePairAddress& peer);
    void ready_to_send(const QueuePairAddress& peer);

    detail::QueuePairHandle handle_;
    ibv_qp_ex* extended_ = nullptr;
    ibv_qp_cap capacities_{};
    QueuePairAddress address_;
    Connection connection_{};
};

/// The maximum rate at which a queue pair sends. See ibv_modify_qp_rate_limit(3).
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
/// noexcept, allocate nothing, and only call verbs. They return the errno value of the verbs call,
/// for example ibv_post_send(3), as a CallStatus: ENOMEM if the queue is full, EINVAL for an
/// invalid request. CallStatus::throw_if_failed() throws an Error. A QueuePair can be moved but not
/// copied. It keeps its protection domain, completion queues, shared receive queue and XRC domain
/// alive.
///
/// The noexcept functions, except native(), release() and extended(), must not be called after
/// close(), release() or a move: this is an assertion failure, or undefined behaviour in a build
/// without assertions. The functions that query or modify the queue pair then throw Error EBADF.
class RDMABUF_EXPORT QueuePair {
  public:
    /// Creates a queue pair in the INIT state: see PreparedQueuePair.
    [[nodiscard]] static PreparedQueuePair prepare(const ProtectionDomain& pd,
                                                   const QueuePairOptions& options) {
        return {pd, options};
    }

    /// Takes ownership of @p qp, which other code has created, for example by mlx5dv_create_qp().
    /// The queue pair may have any type and be in any state. The returned object keeps @p pd, @p
    /// send_cq and @p recv_cq alive, but not a shared receive queue of @p qp, which the program
    /// must keep until @p qp is destroyed.
    /// @param extended  as for borrow()
    [[nodiscard]] static QueuePair adopt(const ProtectionDomain& pd, const CompletionQueue& send_cq,
                                         const CompletionQueue& recv_cq, ibv_qp* qp,
                                         ibv_qp_ex* extended = nullptr);
    /// Returns an object that uses @p qp, a queue pair of any type and in any state, without owning
    /// it, for programs that create their own verbs objects. The owner must not destroy @p qp
    /// before this object is destroyed. protection_domain() of an XRC receive queue pair, which has
    /// no protection domain, is like a ProtectionDomain that was closed. For a null pointer, the
    /// result is like an object that was closed.
    /// @param extended  the ibv_qp_ex of @p qp if the queue pair was created with the ibv_wr_*
    ///                  interface; otherwise nullptr
    [[nodiscard]] static QueuePair borrow(ibv_qp* qp, ibv_qp_ex* extended = nullptr);
    /// Opens a queue pair of the type xrc_receive that this or another process has created in @p
    /// domain. The device destroys the queue pair only when every process that created or opened it
    /// has closed it or has ended. So it stays usable for the other processes of the domain after
    /// its creator has ended. ibv_open_qp(3).
    /// @param number  QueuePair::number() of the queue pair
    /// @throws Error EINVAL if @p domain has no such queue pair; EOPNOTSUPP if the provider has no
    ///         ibv_open_qp(3); EBADF if @p domain was closed, released or moved from
    [[nodiscard]] static QueuePair open(const XrcDomain& domain, std::uint32_t number);

    /// Sends the bytes of @p local as one message. The message consumes the oldest receive that the
    /// peer has posted.
    [[gnu::always_inline]] CallStatus post_send(std::span<const ibv_sge> local,
                                                WorkOptions options = {}) const noexcept {
        return post_one(make_send(local, options));
    }
    [[gnu::always_inline]] CallStatus post_send(const ibv_sge& local,
                                                WorkOptions options = {}) const noexcept {
        return post_send(std::span(&local, 1), options);
    }
    /// Sends a message with immediate data.
    /// @param immediate  in host byte order
    [[gnu::always_inline]] CallStatus post_send_imm(std::span<const ibv_sge> local,
                                                    std::uint32_t immediate,
                                                    WorkOptions options = {}) const noexcept {
        return post_one(make_send_imm(local, immediate, options));
    }
    [[gnu::always_inline]] CallStatus post_send_imm(const ibv_sge& local, std::uint32_t immediate,
                                                    WorkOptions options = {}) const noexcept {
        return post_send_imm(std::span(&local, 1), immediate, options);
    }
    /// Sends a message to the peer @p to. The queue pair must have the type UD or SRD.
    [[gnu::always_inline]] CallStatus post_send_to(std::span<const ibv_sge> local, Destination to,
                                                   WorkOptions options = {}) const noexcept {
        return post_one(make_send_to(local, to, options));
    }
    [[gnu::always_inline]] CallStatus post_send_to(const ibv_sge& local, Destination to,
                                                   WorkOptions options = {}) const noexcept {
        return post_send_to(std::span(&local, 1), to, options);
    }
    /// Sends a message with immediate data to the peer @p to. The queue pair must have the type UD
    /// or SRD.
    /// @param immediate  in host byte order
    [[gnu::always_inline]] CallStatus post_send_imm_to(std::span<const ibv_sge> local,
                                                       Destination to, std::uint32_t immediate,
                                                       WorkOptions options = {}) const noexcept {
        return post_one(make_send_imm_to(local, to, immediate, options));
    }
    [[gnu::always_inline]] CallStatus post_send_imm_to(const ibv_sge& local, Destination to,
                                                       std::uint32_t immediate,
                                                       WorkOptions options = {}) const noexcept {
        return post_send_imm_to(std::span(&local, 1), to, immediate, options);
    }
    /// Sends a message that also invalidates the peer's memory window with @p rkey. See
    /// make_send_inv().
    [[gnu::always_inline]] CallStatus post_send_inv(std::span<const ibv_sge> local,
                                                    std::uint32_t rkey,
                                                    WorkOptions options = {}) const noexcept {
        return post_one(make_send_inv(local, rkey, options));
    }
    [[gnu::always_inline]] CallStatus post_send_inv(const ibv_sge& local, std::uint32_t rkey,
                                                    WorkOptions options = {}) const noexcept {
        return post_send_inv(std::span(&local, 1), rkey, options);
    }
    /// Invalidates the local memory window that has @p rkey. See make_local_inv().
    [[gnu::always_inline]] CallStatus post_local_inv(std::uint32_t rkey,
                                                     WorkOptions options = {}) const noexcept {
        return post_one(make_local_inv(rkey, options));
    }
    /// Binds a memory window of type 1 or type 2 to a part of a region (RC and UC). On success,
    /// window.rkey() is the new rkey, which is valid after the request has completed. The
    /// completion has the opcode IBV_WC_BIND_MW.
    /// @return the same values as post_send(). For a region without Access::memory_window_bind,
    ///         some providers return EINVAL. With other providers, the request completes with
    ///         IBV_WC_MW_BIND_ERR.
    CallStatus post_bind(MemoryWindow& window, const MemoryWindowBinding& binding,
                         WorkOptions options = {}) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        if (window.type() == MemoryWindowType::type_1) {
            ibv_mw_bind request{.wr_id = options.wr_id,
                                .send_flags = static_cast<unsigned>(options.flags),
                                .bind_info = binding.native()};
            return {Status(ibv_bind_mw(handle_.get(), window.native(), &request)), "ibv_bind_mw"};
        }
        const std::uint32_t rkey = window.next_rkey();
        const CallStatus status =
            post_one(make_bind(window.native(), rkey, binding.native(), options));
        if (status) {
            window.set_rkey(rkey);
        }
        return status;
    }
    /// Writes to memory of the peer @p to (SRD). The request is posted with the ibv_wr_* interface.
    /// @return the same values as post_send(), and EOPNOTSUPP if extended() is false or the device
    ///         does not support RDMA writes (SrdAttributes::rdma_write)
    CallStatus post_write_to(std::span<const ibv_sge> local, Destination to, RemoteAddress remote,
                             WorkOptions options = {}) const noexcept {
        if (extended_ == nullptr || extended_->wr_rdma_write == nullptr) {
            return {Status(EOPNOTSUPP), "ibv_wr_complete"};
        }
        WorkBatch requests = batch();
        requests.write_to(local, to, remote, options);
        return requests.complete();
    }
    CallStatus post_write_to(const ibv_sge& local, Destination to, RemoteAddress remote,
                             WorkOptions options = {}) const noexcept {
        return post_write_to(std::span(&local, 1), to, remote, options);
    }
    /// Writes to memory of the peer @p to, as post_write_to() does. When the data is in place, a
    /// receive that the peer has posted completes with @p immediate.
    /// @param immediate  in host byte order
    CallStatus post_write_imm_to(std::span<const ibv_sge> local, Destination to,
                                 RemoteAddress remote, std::uint32_t immediate,
                                 WorkOptions options = {}) const noexcept {
        if (extended_ == nullptr || extended_->wr_rdma_write_imm == nullptr) {
            return {Status(EOPNOTSUPP), "ibv_wr_complete"};
        }
        WorkBatch requests = batch();
        requests.write_imm_to(local, to, remote, immediate, options);
        return requests.complete();
    }
    CallStatus post_write_imm_to(const ibv_sge& local, Destination to, RemoteAddress remote,
                                 std::uint32_t immediate, WorkOptions options = {}) const noexcept {
        return post_write_imm_to(std::span(&local, 1), to, remote, immediate, options);
    }
    /// Reads from memory of the peer @p from (SRD). The request is posted with the ibv_wr_*
    /// interface.
    /// @return the same values as post_send(), and EOPNOTSUPP if extended() is false or the device
    ///         does not support RDMA reads (SrdAttributes::rdma_read)
    CallStatus post_read_from(std::span<const ibv_sge> local, Destination from,
                              RemoteAddress remote, WorkOptions options = {}) const noexcept {
        if (extended_ == nullptr || extended_->wr_rdma_read == nullptr) {
            return {Status(EOPNOTSUPP), "ibv_wr_complete"};
        }
        WorkBatch requests = batch();
        requests.read_from(local, from, remote, options);
        return requests.complete();
    }
    CallStatus post_read_from(const ibv_sge& local, Destination from, RemoteAddress remote,
                              WorkOptions options = {}) const noexcept {
        return post_read_from(std::span(&local, 1), from, remote, options);
    }
    /// Posts a receive. The NIC writes one message of the peer to @p local. On a UD queue pair, the
    /// first 40 bytes of @p local are reserved for the GRH. Messages of SRD queue pairs have no
    /// GRH.
    [[gnu::always_inline]] CallStatus post_recv(std::span<const ibv_sge> local,
                                                std::uint64_t wr_id = 0) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        ibv_recv_wr request = make_recv(local, wr_id);
        ibv_recv_wr* failed; // NOLINT(*-init-variables): set by verbs on failure
        return {Status(ibv_post_recv(handle_.get(), &request, &failed)), "ibv_post_recv"};
    }
    [[gnu::always_inline]] CallStatus post_recv(const ibv_sge& local,
                                                std::uint64_t wr_id = 0) const noexcept {
        return post_recv(std::span(&local, 1), wr_id);
    }
    /// Writes the bytes of @p local to memory of the peer. The completion of an RC queue pair means
    /// that the peer's device has acknowledged the write.
    ///
    /// @p local may be empty: a write of zero bytes. The peer's device then checks neither the
    /// address nor the rkey of @p remote, so both may be 0 (InfiniBand specification, C9-88;
    /// softverbs and Linux's rxe do so). The peer's queue pair must permit remote writes. A write
    /// of zero bytes consumes no receive of the peer. On an RC queue pair, it completes
    /// successfully if the peer's queue pair is still connected; otherwise it fails with
    /// IBV_WC_RETRY_EXC_ERR.
    [[gnu::always_inline]] CallStatus post_write(std::span<const ibv_sge> local,
                                                 RemoteAddress remote,
                                                 WorkOptions options = {}) const noexcept {
        return post_one(make_write(local, remote, options));
    }
    [[gnu::always_inline]] CallStatus post_write(const ibv_sge& local, RemoteAddress remote,
                                                 WorkOptions options = {}) const noexcept {
        return post_write(std::span(&local, 1), remote, options);
    }
    /// Writes to memory of the peer. When the data is in place, the oldest receive that the peer
    /// has posted completes with @p immediate.
    /// @param immediate  in host byte order
    [[gnu::always_inline]] CallStatus post_write_imm(std::span<const ibv_sge> local,
                                                     RemoteAddress remote, std::uint32_t immediate,
                                                     WorkOptions options = {}) const noexcept {
        return post_one(make_write_imm(local, remote, immediate, options));
    }
    [[gnu::always_inline]] CallStatus post_write_imm(const ibv_sge& local, RemoteAddress remote,
                                                     std::uint32_t immediate,
                                                     WorkOptions options = {}) const noexcept {
        return post_write_imm(std::span(&local, 1), remote, immediate, options);
    }
    [[gnu::always_inline]] CallStatus post_read(std::span<const ibv_sge> local,
                                                RemoteAddress remote,
                                                WorkOptions options = {}) const noexcept {
        return post_one(make_read(local, remote, options));
    }
    [[gnu::always_inline]] CallStatus post_read(const ibv_sge& local, RemoteAddress remote,
                                                WorkOptions options = {}) const noexcept {
        return post_read(std::span(&local, 1), remote, options);
    }
    /// Posts an atomic compare-and-swap: if the 64-bit value at @p remote is equal to @p expected,
    /// replaces it by @p swap. Stores the old value in @p local in both cases. See
    /// make_compare_swap().
    [[gnu::always_inline]] CallStatus post_compare_swap(const ibv_sge& local, RemoteAddress remote,
                                                        std::uint64_t expected, std::uint64_t swap,
                                                        WorkOptions options = {}) const noexcept {
        return post_one(make_compare_swap(std::span(&local, 1), remote, expected, swap, options));
    }
    /// Posts an atomic fetch-and-add: adds @p addend to the 64-bit value at @p remote, and stores
    /// the old value in @p local. See make_fetch_add().
    [[gnu::always_inline]] CallStatus post_fetch_add(const ibv_sge& local, RemoteAddress remote,
                                                     std::uint64_t addend,
                                                     WorkOptions options = {}) const noexcept {
        return post_one(make_fetch_add(std::span(&local, 1), remote, addend, options));
    }

    /// Posts the requests of @p list with one C call. On failure, @p failed points to the first
    /// request that was not posted.
    /// @return the same values as post_send(), and E2BIG if more than @p Capacity requests were
    ///         added to @p list. In the case of E2BIG, no request is posted.
    template <std::size_t Capacity>
    [[gnu::always_inline]] CallStatus post(SendList<Capacity>& list,
                                           ibv_send_wr*& failed) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        const Status status = list.post(
            [this](ibv_send_wr* first, ibv_send_wr** stopped) {
                return ibv_post_send(handle_.get(), first, stopped);
            },
            failed);
        return {status, "ibv_post_send"};
    }
    template <std::size_t Capacity>
    [[gnu::always_inline]] CallStatus post(RecvList<Capacity>& list,
                                           ibv_recv_wr*& failed) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        const Status status = list.post(
            [this](ibv_recv_wr* first, ibv_recv_wr** stopped) {
                return ibv_post_recv(handle_.get(), first, stopped);
            },
            failed);
        return {status, "ibv_post_recv"};
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
    /// Queries the state of the queue pair from the device. See ibv_query_qp(3).
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
    /// Returns true if the NIC writes the bytes of each request in order to the memory of this
    /// side, so that a CPU can poll for the last byte instead of a completion. The result applies
    /// neither to regions with Access::relaxed_ordering nor to the order of several requests. It is
    /// also false with rdma-core before version 36. ibv_query_qp_data_in_order(3).
    /// @param operation  IBV_WR_RDMA_WRITE or IBV_WR_SEND for requests of the peer,
    ///                   IBV_WR_RDMA_READ for reads of this queue pair
    /// @throws Error EBADF if the queue pair was closed
    [[nodiscard]] bool is_data_in_order(ibv_wr_opcode operation) const;
    /// Modifies attributes of a connected queue pair. For example, IBV_QP_MIN_RNR_TIMER changes
    /// min_rnr_timer. ibv_modify_qp(3) lists the attributes that can change in each state.
    /// @param mask  the members of @p attributes to apply, as IBV_QP_* bits
    /// @throws Error with the errno value of ibv_modify_qp(3): EINVAL for an attribute that
    ///         cannot change in this state, or for an invalid value. After an error, the attributes
    ///         are unchanged.
    void modify(ibv_qp_attr attributes, int mask);
    /// Limits the rate at which the queue pair sends. DeviceAttributes::native.packet_pacing_caps
    /// has the limits of the device and the supported queue pair types. See
    /// ibv_modify_qp_rate_limit(3).
    /// @throws Error
    ///   - EOPNOTSUPP: the provider has no rate limits
    ///   - EINVAL: the rate is outside the device's limits, which the error text contains; this
    ///     queue pair type has no rate limits; or max_burst_size or typical_packet_size is set
    ///     without a rate, or for a device that does not support it (libmlx5)
    void set_rate_limit(const RateLimit& limit);
    /// Returns the ECE options (enhanced connection establishment) that the device uses for this
    /// connection. See PreparedQueuePair::set_ece().
    [[nodiscard]] ibv_ece ece() const;
    /// Moves the queue pair to the error state. All requests that are still outstanding, and all
    /// receives of its own receive queue, complete with IBV_WC_WR_FLUSH_ERR. To drain the queue
    /// pair, then post one signaled send and one receive: both complete with IBV_WC_WR_FLUSH_ERR,
    /// each as the last request of its queue. With a shared receive queue, wait for
    /// IBV_EVENT_QP_LAST_WQE_REACHED instead of the receive. Some providers accept no requests in
    /// this state (EINVAL, for example EFA): then only close() ends the outstanding requests.
    /// ibv_modify_qp(3).
    void abort();

    /// Posts a request to the send queue of this XRC queue pair. The request names a shared receive
    /// queue of the peer. Messages and writes with immediate data consume a receive of that queue.
    /// @param request     a request that was made by a make_ function, such as make_send()
    /// @param srq_number  the SharedReceiveQueue::number() of the peer's shared receive queue
    [[gnu::always_inline]] CallStatus post_to_srq(ibv_send_wr request,
                                                  std::uint32_t srq_number) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        request.qp_type.xrc.remote_srqn = srq_number;
        ibv_send_wr* failed; // NOLINT(*-init-variables): as in post_recv
        return {Status(ibv_post_send(handle_.get(), &request, &failed)), "ibv_post_send"};
    }

    [[nodiscard]] ibv_qp* native() const noexcept { return handle_.get(); }
    /// Returns the ibv_qp and gives up ownership: the caller must destroy the ibv_qp. If it was
    /// borrowed, only its owner may destroy it.
    [[nodiscard]] ibv_qp* release() noexcept { return handle_.release(); }
    /// Destroys the queue pair now. After an error, this object still owns the queue pair.
    /// @throws Error with the errno value of ibv_destroy_qp(3)
    void close() { detail::close_handle(handle_); }

  private:
    friend class PreparedQueuePair;
    QueuePair(detail::QueuePairHandle handle, ibv_qp_ex* extended) noexcept
        : handle_(std::move(handle)), extended_(extended) {}

    [[gnu::always_inline]] CallStatus post_one(ibv_send_wr&& request) const noexcept {
        assert(handle_ != nullptr && "the queue pair was closed, released or moved from");
        ibv_send_wr* failed; // NOLINT(*-init-variables): as in post_recv
        return {Status(ibv_post_send(handle_.get(), &request, &failed)), "ibv_post_send"};
    }

    detail::QueuePairHandle handle_;
    ibv_qp_ex* extended_;
};

} // namespace rdmabuf
