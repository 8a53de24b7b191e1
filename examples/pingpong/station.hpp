// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>

#include "layout.hpp"
#include "memory.hpp"
#include "options.hpp"

namespace pingpong {

/// What one end has before it knows the other: everything but a connection.
struct Station {
    /// @throws UsageError for what this device cannot do, rdmabuf::Error
    /// @param device_gid  nothing where librdmacm chooses
    Station(const rdmabuf::Context& device, std::uint8_t device_port,
            std::optional<rdmabuf::GidEntry> device_gid, const Options& options);

    rdmabuf::Context context;
    std::uint8_t port;
    std::optional<rdmabuf::GidEntry> gid;
    rdmabuf::ProtectionDomain pd;
    rdmabuf::CompletionQueue cq;
    Layout layout;
    std::unique_ptr<Memory> memory;
    /// Where a receive puts data: nowhere, except for --verb send.
    std::vector<ibv_sge> receive_into;
};

/// The GID table's entry to use. @throws UsageError for an index that is not in use
[[nodiscard]] rdmabuf::GidEntry choose_gid(const rdmabuf::Context& context, const Options& options);

/// A queue pair of the station with its receives posted, so that nothing can come too early.
[[nodiscard]] rdmabuf::PreparedQueuePair prepare_queue_pair(const Station& station);

/// Receives that are posted whenever the other end may send. At most two messages come between two
/// occasions to post more, and a few more at the end.
inline constexpr std::uint32_t receive_depth = 16;
/// Marks the completion of a receive.
inline constexpr std::uint64_t receive_id = 1;
/// Marks the completion of anything else.
inline constexpr std::uint64_t send_id = 2;

} // namespace pingpong
