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
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/queue_pair_options.hpp>
#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_request.hpp>
#include <rdmabuf/xrc_domain.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DestroyQp {
    static constexpr const char* name = "ibv_destroy_qp";
    static int call(ibv_qp* qp) noexcept;
};
using QueuePairHandle =
    unique_handle<ibv_qp, DestroyQp, ProtectionDomain, CompletionQueue, CompletionQueue,
                  SharedReceiveQueueHandle, std::optional<XrcDomain>>;
} // namespace detail

class QueuePair; // defined in queue_pair.hpp

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
    /// @throws Error EINVAL for a value above the device's limit, which the error text contains, or
    ///         for a port that is not active or does not exist; EADDRNOTAVAIL if the port has no
    ///         GID; EOPNOTSUPP if the device does not support the queue pair type, the ibv_wr_*
    ///         interface that is required, or QueuePairOptions::access with SRD; ENOMEM if no
    ///         memory is left
    PreparedQueuePair(const ProtectionDomain& pd, const QueuePairOptions& options);

    /// Returns the address of this queue pair, which a peer needs to connect to the queue pair or
    /// to send datagrams to it.
    [[nodiscard]] const QueuePairAddress& address() const noexcept { return address_; }

    /// Posts a receive, as QueuePair::post_recv() does. Post the first receives before the address
    /// is sent to the peer, so that the peer cannot send too early.
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

    /// Returns the ECE options (enhanced connection establishment) that the device supports for
    /// this queue pair. The meaning of ibv_ece::options depends on ibv_ece::vendor_id, so the
    /// options of different vendors cannot be compared. ibv_query_ece(3).
    /// @throws Error EOPNOTSUPP if the provider has no ECE
    [[nodiscard]] ibv_ece ece() const;
    /// Sets the ECE options that the connection will use. Call set_ece() before connect(). Without
    /// set_ece(), a connection uses no ECE options. The two sides agree on the options in three
    /// steps:
    ///  - The first side sends its ece() with its address().
    ///  - If the vendor_ids are equal, the second side sets these options and connects. It sends
    ///    back its QueuePair::ece(), which has the accepted options, with its address().
    ///  - The first side sets the accepted options and connects.
    ///
    /// ibv_set_ece(3).
    /// @throws Error EOPNOTSUPP if the provider has no ECE, or if vendor_id is 0; EINVAL if
    ///         vendor_id is not that of this device
    void set_ece(const ibv_ece& ece);

    /// Connects to @p peer (RC, UC, XRC): moves the queue pair from INIT to RTR to RTS. A queue
    /// pair of the type xrc_send connects to a peer of the type xrc_receive. After an error, this
    /// object still owns the queue pair, which can only be destroyed.
    /// @throws Error EPROTO if the peer's queue pair type does not match; EINVAL for UD and SRD
    ///         queue pairs; the errno value if ibv_modify_qp(3) fails, for example ETIMEDOUT or
    ///         EHOSTUNREACH if the GID of the peer cannot be resolved
    [[nodiscard]] QueuePair connect(const QueuePairAddress& peer) &&;
    /// Moves a UD or SRD queue pair to the RTS state, in which it can send to any peer.
    /// @throws Error EINVAL for queue pairs of other types
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
    QueuePairAddress address_;
    Connection connection_{};
};

} // namespace rdmabuf
