// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/address_handle.hpp>
#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/transport/detail/setup_queue_pair.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport::detail {

/// How the two ends of a prepared channel learn that both are connected.
///
/// A device drops packets that arrive at a queue pair which is not connected, and a queue pair that
/// repeats a packet too often fails. Therefore an end posts nothing on the queue pairs of the
/// channel until those of the peer are connected. The ends inform each other by datagrams between
/// their SetupQueuePair objects, which exist before the addresses are exchanged. An end sends a
/// ConnectedDatagram only after all its queue pairs are connected. In every datagram,
/// ConnectedDatagram::needs_reply says whether the sender is in the state `waiting`.
///
/// | state   | event                                | action                     | new state |
/// |---------|--------------------------------------|----------------------------|-----------|
/// | -       | PreparedChannel::connect()           | send a datagram            | waiting   |
/// | waiting | a periodic check                     | send a datagram            | waiting   |
/// | waiting | a datagram of the peer               | reply if it needs a reply  | connected |
/// | waiting | the deadline has passed              | fail with ETIMEDOUT        | failed    |
/// | connected | a datagram that needs a reply      | send a datagram            | connected |
/// | connected | a datagram that needs no reply     | none                       | connected |
///
/// All datagrams of an end contain the same fact, which remains true. So a datagram that is
/// duplicated, delayed or reordered has no other effect than the first one. If a datagram or a
/// reply is lost, an end remains in the state `waiting`. It then repeats its datagram, and the
/// other end replies in both states, because it is in the state `connected` after the first
/// datagram that arrives. A reply needs no reply, so that the exchange ends.
struct PeerSetup {
    SetupQueuePair& queue_pair;
    /// The random numbers that identify this end and the peer: Hello::secret in their addresses.
    Handle::Secret ours;
    Handle::Secret theirs;
    /// The path to the SetupQueuePair of the peer, and the address of this queue pair.
    AddressHandle path;
    QueuePairAddress peer;
    /// The time at which the channel fails, in nanoseconds of now_ns().
    std::int64_t deadline_ns = 0;
    /// True in the state `connected`.
    bool peer_connected = false;
    /// True if advance() must send a datagram.
    bool datagram_due = false;
};

} // namespace rdmabuf::transport::detail
