// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/access.hpp>
#include <rdmabuf/registration_cache.hpp>

namespace rdmabuf::transport {

/// The maximum number of RDMA devices of an Endpoint.
inline constexpr std::size_t max_rails = 4;
/// The maximum value of EndpointOptions::queue_pairs_per_device.
inline constexpr std::size_t max_queue_pairs_per_device = 4;
/// The maximum length of a notification in bytes.
inline constexpr std::size_t max_notification = 512;

/// Options of an Endpoint and its channels. The two ends of a channel may have different options.
struct EndpointOptions {
    /// The number of the port that is used on every device; ports are counted from 1.
    std::uint8_t port = 1;
    /// Maximum number of requests in flight on a channel, from 1 to 65,535. If this number is
    /// reached, starting another request fails with EAGAIN.
    std::uint32_t depth = 256;
    /// Maximum number of work requests that a queue pair may have in flight, from 16 to 32,768. If
    /// a device supports fewer work requests, the maximum of the device is used.
    std::uint32_t send_depth = 128;
    /// Number of queue pairs that a channel has on each device, from 1 to 4; the smaller value of
    /// both ends applies. The data of a long transfer is striped over all these queue pairs, so
    /// that a network with several equal paths (ECMP) transfers it over several paths. Messages use
    /// the first queue pair of the first device. See flow_label for the UDP source ports.
    std::uint32_t queue_pairs_per_device = 1;

    /// Maximum length in bytes of an eager message, up to 1 MiB; the smaller value of both ends
    /// applies. An eager message is sent to a bounce buffer of the receiver. The data of a longer
    /// message is transferred by RDMA between the memory of the two requests.
    std::uint32_t eager_limit = 8192;
    /// Number of receive buffers that all channels of the endpoint share, from 16 to 65,536. Each
    /// buffer has the length of the longest eager message. While no buffer is free, peers' devices
    /// receive RNR NAKs and send again.
    std::uint32_t receive_buffers = 256;
    /// Number of send buffers of 1,088 bytes that all channels of the endpoint share, from 4 to
    /// 65,536.
    std::uint32_t send_buffers = 256;
    /// Maximum number of bytes of eager messages of one channel that wait for their receives at
    /// this end, from 4,096 to 2^30. Each message counts as its length plus 64 bytes. If this limit
    /// is reached, the peer sends an RTS for each further message, and sends the data when the
    /// receive is posted.
    std::uint32_t unexpected_limit = std::uint32_t{1} << 20U;
    /// Maximum number of bytes of notifications of one channel that wait at this end for the
    /// program, from 4,096 to 2^30. Each notification counts as its length plus 64 bytes. If this
    /// limit is reached, further notifications wait at the peer. They delay only later
    /// notifications.
    std::uint32_t notification_limit = std::uint32_t{1} << 16U;
    /// Maximum length of inline data of a queue pair in bytes, up to 512; 0 disables inline data.
    /// If a device does not support this length, inline data is not used.
    std::uint32_t inline_data = 128;
    /// If true, the receiver reads a long message by RDMA when the sender's memory permits this and
    /// the receive was not advertised. The sender's processor is then not needed during the
    /// transfer. If false, the sender always writes the data.
    bool read_long_messages = true;
    /// Minimum length in bytes of a fragment, which is the range that one queue pair transfers of a
    /// striped transfer.
    std::uint32_t min_fragment = 65536;

    /// Maximum duration of a request; 0: no limit. A request that takes longer ends with ETIMEDOUT,
    /// and its channel fails.
    std::chrono::milliseconds timeout{0};
    /// Keepalive interval. If a channel with requests in flight receives nothing during this time,
    /// its devices write 0 bytes to the peer by RDMA, to check that the peer's devices respond.
    std::chrono::milliseconds heartbeat{1000};
    /// Maximum time in which a new connection must prove that it has the handle. The queue pairs of
    /// both ends must then be connected within the same time limit. Also the maximum time between
    /// PreparedChannel::connect() of this end and of the peer.
    std::chrono::milliseconds handshake{10000};
    /// Maximum time for which Channel::close() waits until queued messages are acknowledged.
    std::chrono::milliseconds linger{1000};
    /// If false, both ends close the socket of a channel after the channel is connected, whatever
    /// the option of the peer is. The failure of a peer process is then detected later: when a work
    /// request for the next request or for a keepalive write fails.
    bool keep_sockets = true;
    /// If true, the endpoint reads the asynchronous events of its devices
    /// (ibv_get_async_event(3)), so that the failure of a device or of a queue pair ends the
    /// channels at once. The events are read while the endpoint sleeps, and in periodic checks at
    /// most ten times per heartbeat; the endpoint acknowledges each event.
    ///
    /// A device returns each event to one reader only. So the program does not receive the events
    /// of other objects on the same Context, and ibv_context::async_fd becomes non-blocking. All
    /// endpoints of the process that use this Context receive the events, whichever of them reads
    /// them. A program that reads events itself opens another Context for the endpoint. Or it
    /// sets this option to false in all endpoints of the Context, and passes each event that it
    /// reads to Endpoint::async_event(). Without events, a failed device is detected when a work
    /// request of a message or of a keepalive write fails.
    bool read_async_events = true;

    // The following options are those of QueuePairOptions with the same name, except for flow_label
    // with several queue pairs.
    std::optional<std::uint8_t> gid_index = std::nullopt;
    std::uint16_t pkey_index = 0;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    /// The flow label of the first queue pair of each device. If it is not 0, queue pair number i
    /// of a device uses flow_label + i, modulo 2^20. For RoCE v2, the kernel computes the UDP
    /// source port from the flow label (rdma_flow_label_to_udp_sport() in rdma/ib_verbs.h). If it
    /// is 0, the driver chooses the ports; most drivers compute them from the two queue pair
    /// numbers (rdma_get_udp_sport()), so that queue pairs usually have different ports.
    std::uint32_t flow_label = 0;
    /// The timeout of the queue pairs, encoded as for QueuePairOptions::timeout. This timeout and
    /// retry_count determine after which time a peer's device that does not respond is reported as
    /// EHOSTUNREACH.
    std::uint8_t ack_timeout = 14;
    /// Maximum number of retransmissions by a device that receives no acknowledgement, from 0 to 7.
    std::uint8_t retry_count = 7;

    /// Options of the registration cache that register_memory() uses.
    RegistrationCacheOptions cache = {};
};

} // namespace rdmabuf::transport
