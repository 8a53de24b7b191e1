// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/access.hpp>
#include <rdmabuf/registration_cache.hpp>

namespace rdmabuf::transport {

/// The most devices that one Endpoint stripes over.
inline constexpr std::size_t max_rails = 4;

/// How an Endpoint and its channels work. The two ends of a channel may differ in all of it.
struct EndpointOptions {
    /// Of every device, from 1.
    std::uint8_t port = 1;
    /// Requests that a channel may have in flight, from 1 to 65,535; one more is refused with
    /// EAGAIN.
    std::uint32_t depth = 256;
    /// Messages up to this many bytes travel with their announcement, through memory of the
    /// receiver's channel; longer ones wait for their receive, and the sender's device writes them
    /// where they belong: at once, if it was there first and of its tag the only one. Up to 1 MiB.
    std::uint32_t eager_limit = 8192;
    /// Announced messages that may wait at the receiver for their receives. Further ones wait at
    /// the sender, whatever their tag. At least 4.
    std::uint32_t eager_slots = 64;
    /// Bytes that a queue pair takes inside a request, 0 for none. A device that does not have as
    /// many gets none.
    std::uint32_t inline_data = 128;
    /// A message is striped over the devices in pieces of at least this many bytes.
    std::uint32_t stripe = 65536;

    /// How long a request may take before it ends with ETIMEDOUT and with it the channel; 0 for
    /// ever.
    std::chrono::milliseconds timeout{0};
    /// While requests are in flight and nothing is heard of the peer, its device is asked this
    /// often whether it is there, and its socket looked at ten times as often.
    std::chrono::milliseconds heartbeat{1000};
    /// How long a connection may take to prove that it has the handle, and how long after that both
    /// ends may take to connect their queue pairs.
    std::chrono::milliseconds handshake{10000};
    /// How long closing a channel waits for its last messages to be taken.
    std::chrono::milliseconds linger{1000};
    /// QueuePairOptions::timeout and retry_count: when a device that does not answer counts as
    /// gone.
    std::uint8_t ack_timeout = 14;
    std::uint8_t retry_count = 7;

    /// What register_memory() keeps registered.
    RegistrationCacheOptions cache = {};
};

} // namespace rdmabuf::transport
