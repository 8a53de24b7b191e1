// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include <rdmabuf/region.hpp>
#include <rdmabuf/registration_cache.hpp>

namespace rdmabuf::transport {

/// The maximum number of RDMA devices of an Endpoint.
inline constexpr std::size_t max_rails = 8;
/// The maximum value of EndpointOptions::queue_pairs_per_device.
inline constexpr std::size_t max_queue_pairs_per_device = 4;
/// The maximum number of queue pairs of a channel, on all devices together.
inline constexpr std::size_t max_channel_rails = 16;
/// The maximum length of a notification in bytes.
inline constexpr std::size_t max_notification = 512;
/// The maximum length in bytes of a message that Channel::send_copy() sends.
inline constexpr std::size_t max_copied_message = 1024;
/// The number of entries that an endpoint reserves in each completion queue for the loopback queue
/// pair, which copies to GPU memory and performs flush reads: 64 for sends and reads, 128 for
/// receives.
inline constexpr std::uint32_t loopback_completions = 192;

/// Options of an Endpoint and its channels. The two ends of a channel may have different options.
struct EndpointOptions {
    /// The number of the port that is used on every device; ports are counted from 1.
    std::uint8_t port = 1;
    /// Maximum number of requests in flight on a channel, from 1 to 65,535. While so many are in
    /// flight, starting another request fails with EAGAIN. Also the maximum number of the peer's
    /// RTS messages (see unexpected_limit) that this end stores, in up to 512 bytes each. While so
    /// many are stored, further sends of the peer that need an RTS wait, and so do all sends behind
    /// them.
    std::uint32_t depth = 256;
    /// Number of entries of the send queue of each queue pair of a channel, from 16 to 32,768. If a
    /// device supports fewer entries, the maximum of the device is used. One entry is reserved for
    /// the case that the queue pair fails; the others limit the work requests in flight.
    std::uint32_t send_depth = 128;
    /// Number of queue pairs that a channel has on each device, from 1 to 4, and up to 16 on all
    /// devices; the smaller value of both ends applies. The data of a long transfer is striped over
    /// all these queue pairs, so that a network with several equal paths (ECMP) transfers it over
    /// several paths. Eager messages and control messages use only the first queue pair of the
    /// first device. See flow_label for the UDP source ports.
    std::uint32_t queue_pairs_per_device = 1;

    /// Maximum length in bytes of an eager message, up to 1 MiB; the smaller value of both ends
    /// applies. An eager message is sent to a bounce buffer of the receiver. The data of a longer
    /// message is transferred by RDMA, directly from the memory of the sender to the memory of the
    /// receiver.
    std::uint32_t eager_limit = 8192;
    /// Number of receive buffers that all channels of the endpoint share, from 16 to 65,536. Each
    /// buffer has room for the longest eager message. While no buffer is free, peers' devices
    /// receive RNR NAKs and send again. If the device permits fewer receives in a shared receive
    /// queue (ibv_device_attr::max_srq_wr), only so many buffers are used.
    std::uint32_t receive_buffers = 256;
    /// Number of send buffers of 1,088 bytes that all channels of the endpoint share, from 4 to
    /// 65,536. When half of the buffers are in use, a channel gets another one only if it uses
    /// fewer than 8; when three quarters are in use, only if it uses none. So channels whose peers
    /// receive nothing do not stop the others, if there are at most send_buffers / 4 channels.
    std::uint32_t send_buffers = 256;
    /// The limit for unexpected eager messages of a channel in bytes, from 4,096 to 2^30. A message
    /// is unexpected if it has arrived before a receive was posted for it. Each message counts as
    /// its length plus 64 bytes. It takes its length plus 96 bytes of memory, rounded up to a power
    /// of two: in total less than three times the limit. A message counts until its data is copied
    /// to the memory of its receive, or for GPU memory to one of the 16 buffers from which a NIC
    /// copies it. If this limit is reached, the peer sends only an RTS (request to send) for each
    /// further message, and the data is transferred after the receive is posted.
    std::uint32_t unexpected_limit = std::uint32_t{1} << 20U;
    /// Maximum total size in bytes, for each channel, of the notifications that have arrived at
    /// this end and that the program has not read yet; from 4,096 to 2^30. Each notification counts
    /// as its length plus 64 bytes. If this limit is reached, further notifications wait at the
    /// peer, and delay only later notifications.
    std::uint32_t notification_limit = std::uint32_t{1} << 16U;
    /// Maximum length of inline data of a queue pair in bytes, up to 512; 0 disables inline data.
    /// If a device does not support this length, 96 bytes are tried, and then none.
    std::uint32_t inline_data = 128;
    /// If true, the peer reads a long message of this end by RDMA, provided that the memory of the
    /// message has Access::remote_read and the peer has not advertised the receive buffer yet. The
    /// CPU of this end is then not needed during the transfer. If false, this end writes the data
    /// of its long messages.
    bool read_long_messages = true;
    /// Minimum length in bytes of the range that one queue pair transfers, if a transfer is striped
    /// over several queue pairs. Only the last range may be shorter.
    std::uint32_t min_fragment = 65536;

    /// Maximum duration of a request; 0: no limit. A request that takes longer ends with ETIMEDOUT,
    /// and its channel fails. A receive from any channel that matches no message in this time ends
    /// with ETIMEDOUT, and no channel fails. When it matches a message, the time begins again.
    std::chrono::milliseconds timeout{0};
    /// Keepalive interval. If a channel has requests in flight, and no message or completion
    /// arrives on its first queue pair during this time, the working queue pairs of the channel
    /// write 0 bytes to the peer by RDMA, to check that the peer's devices respond. A queue pair
    /// whose last work request is signaled and has not completed needs no such write.
    std::chrono::milliseconds heartbeat{1000};
    /// The time after which a failed queue pair (see Channel::working_rails()) is replaced by a new
    /// one; 0: never. Both ends create a new queue pair, and use it for transfers after a test
    /// write of 0 bytes has succeeded. If the new queue pair fails, the time until the next attempt
    /// is doubled, to at most 64 times this value. A queue pair is not replaced while the port of
    /// its device is down, or if its device has failed or has not reported its completions. The
    /// functions that make progress create the new queue pairs.
    std::chrono::milliseconds probation{1000};
    /// Time limit for each of two steps of connecting to a listener: the connector proves that it
    /// has the handle; then both ends connect their queue pairs. Also the maximum time for which a
    /// PreparedChannel waits for its peer after connect() at this end.
    std::chrono::milliseconds handshake{10000};
    /// Maximum time for which Channel::close() waits until all queued messages are sent and
    /// acknowledged. A message is not acknowledged while the peer has no free receive buffer, for
    /// example because its program makes no progress. If the time passes, close() returns
    /// ETIMEDOUT. close() also waits for the acknowledgement of its close message, which is no
    /// error if the time passes. Then further channels with sockets are closed without waiting for
    /// this acknowledgement, until another channel is connected.
    std::chrono::milliseconds linger{1000};
    /// If false at one of the ends, both ends close the socket of a channel after the channel is
    /// connected. The failure of a peer process is then detected later: when the next work request,
    /// for example a keepalive write, fails.
    bool keep_sockets = true;
    /// If true, the endpoint reads the asynchronous events of its devices (ibv_get_async_event(3)),
    /// so that it detects the failure of a device or of a queue pair before a work request fails.
    /// It reads and acknowledges events at least when it sleeps and in periodic checks, at most ten
    /// times per heartbeat.
    ///
    /// A device returns each event to one reader only. So the program itself cannot read the events
    /// of this Context, even those of its own objects, and ibv_context::async_fd becomes
    /// non-blocking. An endpoint that reads an event passes it to all endpoints of the process that
    /// use the same Context. A program that reads events itself has two choices: it opens another
    /// Context for the endpoint; or it sets this option to false in all endpoints of the Context,
    /// and passes each event that it reads to Endpoint::async_event(). Without events, a failed
    /// device is detected when the next work request, for example a keepalive write, fails.
    bool read_async_events = true;

    // The options from gid_index to flow_label have the same meaning as the members of
    // QueuePairOptions with the same names. For flow_label, this is true only of the first queue
    // pair of each device.
    std::optional<std::uint8_t> gid_index = std::nullopt;
    std::uint16_t pkey_index = 0;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    /// The flow label of the first queue pair of each device. If it is not 0, queue pair number i
    /// of a device has the flow label flow_label + i, modulo 2^20. For RoCE v2, the kernel computes
    /// the UDP source port from the flow label (rdma_flow_label_to_udp_sport() in rdma/ib_verbs.h).
    /// If the flow label is 0, the driver chooses the UDP source ports. Most drivers compute them
    /// from the two queue pair numbers (rdma_get_udp_sport()), so queue pairs usually have
    /// different ports.
    std::uint32_t flow_label = 0;
    /// The local ACK timeout of the queue pairs, encoded as in QueuePairOptions::timeout. If a
    /// device of the peer does not respond, this timeout and retry_count determine the time until
    /// EHOSTUNREACH is reported.
    std::uint8_t ack_timeout = 14;
    /// Maximum number of retransmissions of a packet for which no acknowledgement arrives, from 0
    /// to 7.
    std::uint8_t retry_count = 7;

    /// Options of the registration cache that register_memory() uses.
    RegistrationCacheOptions cache = {};

    /// A mutex that the program must hold in each call of the endpoint and of its listeners,
    /// connectors and channels, also while it destroys them; nullptr if there is none. Functions
    /// that connect unlock it while they create and connect queue pairs, register_uncached(),
    /// register_dmabuf() and, for memory longer than DeviceAttributes::max_mr_size,
    /// register_memory() while the devices register memory, and functions that wait while they
    /// sleep, so that another thread can use the endpoint during this time. The mutex is not owned,
    /// and must outlive the endpoint and its channels.
    std::mutex* mutex = nullptr;
};

} // namespace rdmabuf::transport
