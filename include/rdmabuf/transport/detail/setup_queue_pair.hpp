// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/options.hpp>

namespace rdmabuf::transport::detail {

struct SharedRail;

/// A UD queue pair on the first device of an endpoint. The endpoint sends and receives the
/// ConnectedDatagram messages of all its prepared channels on this queue pair. Datagrams can be
/// lost: see PeerSetup.
class RDMABUF_EXPORT SetupQueuePair {
  public:
    /// Creates the queue pair, posts all receives, and reserves entries in the completion queue of
    /// the device @p rail.
    /// @throws Error: the errors of PreparedQueuePair, MemoryRegion and
    ///         SharedState::reserve_completions()
    SetupQueuePair(SharedRail& rail, const EndpointOptions& options);
    SetupQueuePair(const SetupQueuePair&) = delete;
    SetupQueuePair& operator=(const SetupQueuePair&) = delete;
    ~SetupQueuePair();

    [[nodiscard]] const QueuePair& queue_pair() const noexcept { return *queue_pair_; }
    [[nodiscard]] const QueuePairAddress& address() const noexcept { return address_; }
    /// Creates the address handle for the SetupQueuePair of a peer.
    /// @throws Error: the errors of AddressHandle
    [[nodiscard]] std::shared_ptr<const AddressHandle> path_to(const QueuePairAddress& peer) const;

    /// Sends a datagram. Also returns true if ibv_post_send(3) fails, as if the network had lost
    /// the datagram.
    /// @param path  the address handle for @p peer; used until the send has completed
    /// @return false if all send buffers are in use: the datagram was not sent
    [[nodiscard]] bool send(std::shared_ptr<const AddressHandle> path, const QueuePairAddress& peer,
                            const ConnectedDatagram& datagram) noexcept;
    /// Frees the oldest send buffer in use, and releases its address handle. Must be called for
    /// each completion of a send. Sends complete in the order in which they were posted.
    void send_completed() noexcept { paths_[sent_++ % sends].reset(); }

    /// Returns the datagram in receive buffer number @p buffer; std::nullopt if the bytes are not a
    /// ConnectedDatagram of this version.
    /// @param size  WorkCompletion::byte_len
    [[nodiscard]] std::optional<ConnectedDatagram> received(std::uint32_t buffer,
                                                            std::uint32_t size) const noexcept;
    /// Posts a receive with receive buffer number @p buffer.
    CallStatus post_receive(std::uint32_t buffer) const noexcept;

  private:
    static constexpr std::uint32_t sends = 64;

    [[nodiscard]] std::byte* receive_buffer(std::uint32_t buffer) const noexcept {
        return memory_.get() + std::size_t{buffer} * receive_size_;
    }

    AddressHandleOptions path_;
    QueuePairAddress address_;
    /// The length of a receive buffer in bytes: room for a GRH and for a datagram of the active MTU
    /// of the port, the longest that can arrive. A datagram that did not fit into the buffer would
    /// move the queue pair to the error state.
    std::size_t receive_size_;
    /// The receive buffers, followed by the send buffers.
    std::unique_ptr<std::byte[]> memory_; // NOLINT(*-avoid-c-arrays)
    MemoryRegion region_;
    std::optional<QueuePair> queue_pair_;
    /// The address handles of the sends that have not completed. An address handle must exist until
    /// its send has completed.
    std::array<std::shared_ptr<const AddressHandle>, sends> paths_;
    std::uint32_t posted_ = 0;
    /// The number of sends that have completed.
    std::uint32_t sent_ = 0;
};

} // namespace rdmabuf::transport::detail
