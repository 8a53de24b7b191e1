// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include <rdmabuf/address_handle.hpp>
#include <rdmabuf/bootstrap.hpp>
#include <rdmabuf/cm.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/remote_region.hpp>

#include "../memory.hpp"
#include "layout.hpp"
#include "options.hpp"

namespace rdmabuf::tools::perf {

/// The objects of one end that exist before the connection.
struct Resources {
    /// @param device_gid  none if librdmacm chooses it
    /// @throws UsageError for options that the device cannot fulfil, Error
    Resources(const Context& device, std::uint8_t device_port, std::optional<GidEntry> device_gid,
              const Options& options);

    /// A queue pair whose receives for the first transfers are posted. The only place that chooses
    /// the type and the depth of queue pairs.
    [[nodiscard]] PreparedQueuePair prepare(const Options& options) const;
    /// The receive for the next transfer of the slot of @p transfer. Only --verb send receives
    /// data.
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

/// One connected end.
struct End {
    [[nodiscard]] const QueuePair& queue_pair() const noexcept {
        const auto* const own = std::get_if<QueuePair>(&connection);
        return own != nullptr ? *own : std::get_if<cm::Connection>(&connection)->queue_pair();
    }

    /// The first member, because librdmacm closes the device with the connection.
    std::variant<QueuePair, cm::Connection> connection;
    Resources resources;
    /// The region of the other end.
    RemoteRegion peer;
    /// SRD only: each request names the other end by an address handle and an address.
    std::optional<AddressHandle> address_handle = std::nullopt;
    QueuePairAddress peer_address = {};
};

/// Both ends in this process: the initiator and the responder.
[[nodiscard]] std::pair<End, End> connect_loopback(const Options& options);

/// One end, and the TCP connection to the other process. The queue pairs are connected by it or by
/// librdmacm, as the options say.
/// @throws Error EPROTO if the other end was started with other options
[[nodiscard]] std::pair<End, bootstrap::Channel> connect_processes(const Options& options);

} // namespace rdmabuf::tools::perf
