// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include <rdmabuf/bootstrap.hpp>
#include <rdmabuf/cm.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>

#include "../memory.hpp"
#include "layout.hpp"
#include "options.hpp"

namespace rdmabuf::tools::perf {

/// The objects of one end (the initiator or the responder) that are created before the ends are
/// connected.
struct Resources {
    /// @param device_gid  empty if librdmacm chooses the GID
    /// @throws UsageError if the device does not support the options, Error if a call fails
    Resources(const Context& device, std::uint8_t device_port, std::optional<GidEntry> device_gid,
              const Options& options);

    /// Creates a queue pair and posts the receives for the first transfers.
    [[nodiscard]] PreparedQueuePair prepare(const Options& options) const;
    /// Returns the receive buffer for @p transfer. The result is empty for all verbs except send,
    /// because only sends write to receive buffers.
    [[nodiscard]] std::optional<ibv_sge> receive(std::uint64_t transfer) const noexcept;

    Context context;
    std::uint8_t port;
    std::optional<GidEntry> gid;
    Verb verb;
    Layout layout;
    ProtectionDomain pd;
    CompletionQueue cq;
    TestMemory memory;
};

/// One end of the connection (the initiator or the responder), with a connected queue pair.
struct End {
    [[nodiscard]] const QueuePair& queue_pair() const noexcept {
        const auto* const own = std::get_if<QueuePair>(&connection);
        return own != nullptr ? *own : std::get_if<cm::Connection>(&connection)->queue_pair();
    }

    /// This member is declared first, so that it is destroyed last: a cm::Connection owns the
    /// device that the other members use.
    std::variant<QueuePair, cm::Connection> connection;
    Resources resources;
    /// The address and the rkey of the region at the other end.
    RemoteRegion peer;
    /// The address handle and the address of the other end, which each request on an SRD queue pair
    /// contains. Not set for RC queue pairs.
    std::optional<AddressHandle> address_handle = std::nullopt;
    QueuePairAddress peer_address = {};
};

/// Creates the initiator and the responder in this process, and connects them.
/// @return the initiator and the responder, in this order
[[nodiscard]] std::pair<End, End> connect_loopback(const Options& options);

/// Connects this end to the end in another process. The ends exchange the addresses of their queue
/// pairs over a TCP connection, unless the options select librdmacm.
/// @return this end, and the TCP connection to the other process
/// @throws Error EPROTO if the options of the other end differ
[[nodiscard]] std::pair<End, bootstrap::Channel> connect_processes(const Options& options);

} // namespace rdmabuf::tools::perf
