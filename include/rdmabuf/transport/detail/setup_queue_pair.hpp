// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <rdmabuf/address_handle.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/memory_region.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/options.hpp>

namespace rdmabuf::transport::detail {

struct SharedRail;

/// A UD queue pair on the first device of an endpoint, by which the endpoint sends and receives the
/// ConnectedDatagram messages of all its prepared channels. Datagrams can be lost: see PeerSetup.
class SetupQueuePair {
  public:
    /// Creates the queue pair, reserves entries of the completion queue of @p rail, and posts all
    /// receives.
    /// @throws Error of PreparedQueuePair, MemoryRegion and SharedState::reserve_completions()
    RDMABUF_EXPORT SetupQueuePair(SharedRail& rail, const EndpointOptions& options);
    SetupQueuePair(const SetupQueuePair&) = delete;
    SetupQueuePair& operator=(const SetupQueuePair&) = delete;
    RDMABUF_EXPORT ~SetupQueuePair();

    [[nodiscard]] const QueuePair& queue_pair() const noexcept { return *queue_pair_; }
    [[nodiscard]] const QueuePairAddress& address() const noexcept { return address_; }
    /// Creates the address handle for the SetupQueuePair of a peer.
    /// @throws Error of AddressHandle
    [[nodiscard]] RDMABUF_EXPORT AddressHandle path_to(const QueuePairAddress& peer) const;

    /// Sends a datagram. If ibv_post_send(3) fails, the datagram counts as sent and lost.
    /// @return false if all send buffers are in use: the datagram was not sent
    [[nodiscard]] RDMABUF_EXPORT bool send(const AddressHandle& path, const QueuePairAddress& peer,
                                           const ConnectedDatagram& datagram) noexcept;
    /// Called when a datagram was sent. Sends complete in the order in which they were posted.
    void send_completed() noexcept { ++sent_; }

    /// Returns the datagram in a receive buffer; std::nullopt if the bytes are no ConnectedDatagram
    /// of this version.
    /// @param size  WorkCompletion::byte_len
    [[nodiscard]] RDMABUF_EXPORT std::optional<ConnectedDatagram> received(
        std::uint32_t buffer, std::uint32_t size) const noexcept;
    /// Posts a receive with the receive buffer of this index.
    RDMABUF_EXPORT Status post_receive(std::uint32_t buffer) const noexcept;

  private:
    [[nodiscard]] std::byte* receive_buffer(std::uint32_t buffer) const noexcept {
        return memory_.get() + std::size_t{buffer} * receive_size_;
    }

    AddressHandleOptions path_;
    QueuePairAddress address_;
    /// The length of a receive buffer: the length of the longest datagram that the port can
    /// receive, so that no datagram moves the queue pair to the error state.
    std::size_t receive_size_;
    /// The receive buffers, followed by the send buffers.
    std::unique_ptr<std::byte[]> memory_; // NOLINT(*-avoid-c-arrays)
    MemoryRegion region_;
    std::optional<QueuePair> queue_pair_;
    /// The numbers of posted sends and of completed sends.
    std::uint32_t posted_ = 0;
    std::uint32_t sent_ = 0;
};

} // namespace rdmabuf::transport::detail
