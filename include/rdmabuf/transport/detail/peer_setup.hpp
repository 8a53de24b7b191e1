// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/transport/detail/setup_queue_pair.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport::detail {

/// The exchange by which each end of a PreparedChannel, which has no socket, finds out that the
/// queue pairs of both ends are connected.
///
/// A device drops packets that arrive at a queue pair which is not connected, and a queue pair
/// fails if its packets are not acknowledged after all retransmissions. Therefore an end posts
/// nothing on the queue pairs of the channel until the queue pairs of the peer are connected. The
/// ends inform each other by datagrams between their SetupQueuePair objects, which exist before the
/// addresses are exchanged. An end sends a ConnectedDatagram only after all its queue pairs are
/// connected. In every datagram, ConnectedDatagram::needs_reply says whether the sender is in the
/// state `waiting`.
///
/// | state   | event                                | action                     | new state |
/// |---------|--------------------------------------|----------------------------|-----------|
/// | -       | PreparedChannel::connect()           | send a datagram            | waiting   |
/// | -       | the same, with PreparedEnd::datagram | send a datagram            | connected |
/// | waiting | a periodic check                     | send a datagram            | waiting   |
/// | waiting | a datagram of the peer               | reply if it needs a reply  | connected |
/// | waiting | the deadline has passed              | fail with ETIMEDOUT        | failed    |
/// | connected | a datagram that needs a reply      | send a datagram            | connected |
/// | connected | a datagram that needs no reply     | none                       | connected |
///
/// Every datagram of an end means the same: all queue pairs of this end are connected. Therefore
/// duplicated, delayed or reordered datagrams do no harm. If a datagram or a reply is lost, one end
/// remains in the state `waiting`, and sends its datagram again at the next periodic check. The
/// other end is in the state `connected` after the first datagram that it receives, and replies to
/// every later datagram that needs a reply. A reply itself needs no reply, so the exchange ends.
struct PeerSetup {
    SetupQueuePair& queue_pair;
    /// The random number that identifies this end: Hello::secret in the address of this end.
    Handle::Secret ours;
    /// The random number that identifies the peer: Hello::secret in the address of the peer.
    Handle::Secret theirs;
    /// The address handle for datagrams to the SetupQueuePair of the peer.
    std::shared_ptr<const AddressHandle> path;
    /// The address of the SetupQueuePair of the peer.
    QueuePairAddress peer;
    /// The time at which the channel fails if the peer is not connected yet, in nanoseconds of
    /// now_ns().
    std::int64_t deadline_ns = 0;
    /// True after a ConnectedDatagram of the peer has arrived. Requests can then be posted on the
    /// queue pairs of the channel.
    bool peer_connected = false;
    /// True if ChannelState::advance() must send a ConnectedDatagram to the peer.
    bool datagram_due = false;
};

/// An end of a PreparedChannel before connect(). The peer may already have sent a datagram to this
/// end. This datagram is kept: if it were lost, the peer would have to repeat it, and the peer does
/// so only while its program makes progress.
struct PreparedEnd {
    Link<PreparedEnd> link{};
    /// See PeerSetup::ours.
    Handle::Secret secret{};
    /// The last datagram that has arrived for this end.
    std::optional<ConnectedDatagram> datagram = std::nullopt;
};

} // namespace rdmabuf::transport::detail
