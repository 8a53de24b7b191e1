// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/access.hpp>
#include <rdmabuf/registration_cache.hpp>

namespace rdmabuf::transport {

/// The maximum number of devices of an Endpoint.
inline constexpr std::size_t max_rails = 4;

/// Options of an Endpoint and its channels. The two ends of a channel may have different options.
struct EndpointOptions {
    /// The number of the port that is used on every device; ports are counted from 1.
    std::uint8_t port = 1;
    /// Maximum number of requests in flight on a channel, from 1 to 65,535. A further request fails
    /// with EAGAIN.
    std::uint32_t depth = 256;
    /// Maximum length in bytes of an eager message, up to 1 MiB; the smaller value of both ends
    /// applies. An eager message is sent to a bounce buffer of the receiver. For a longer message,
    /// the sender's device writes the data directly to the memory of the posted receive.
    std::uint32_t eager_limit = 8192;
    /// Maximum number of messages that wait at the receiver for a matching receive, from 4 to
    /// 16,384. Further messages wait at the sender, whatever their tag.
    std::uint32_t eager_slots = 64;
    /// Maximum length of inline data of a queue pair in bytes, up to 512; 0: none. If a device does
    /// not support this length, inline data is not used.
    std::uint32_t inline_data = 128;
    /// Minimum length in bytes of the fragments of a transfer that is striped over several devices.
    std::uint32_t stripe = 65536;

    /// Maximum duration of a request; 0: no limit. A request that takes longer ends with ETIMEDOUT,
    /// and its channel fails.
    std::chrono::milliseconds timeout{0};
    /// Keepalive interval. While no work request completes, the peer's socket is checked ten times
    /// per interval. If requests are in flight, the peer's device is also probed once per interval,
    /// by an RDMA write of 0 bytes.
    std::chrono::milliseconds heartbeat{1000};
    /// Maximum time for a new connection to prove that it has the handle. The same limit then
    /// applies to connecting the queue pairs of both ends.
    std::chrono::milliseconds handshake{10000};
    /// Maximum time that Channel::close() waits until the last messages are acknowledged.
    std::chrono::milliseconds linger{1000};
    /// The timeout of the queue pairs, as QueuePairOptions::timeout encodes it. The timeout and
    /// retry_count determine when a device that does not respond is reported as EHOSTUNREACH.
    std::uint8_t ack_timeout = 14;
    /// Maximum number of retransmissions after ack_timeout, from 0 to 7.
    std::uint8_t retry_count = 7;

    /// Options of the registration cache that register_memory() uses.
    RegistrationCacheOptions cache = {};
};

} // namespace rdmabuf::transport
