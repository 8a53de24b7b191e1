// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/one_sided.hpp>
#include <rdmabuf/transport/detail/rail_recovery.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>

namespace rdmabuf::transport::detail {

class ChannelState;

/// Replaces each failed queue pair, except the first, by a new one. Before transfers use the new
/// queue pair, an RDMA write tests it; this phase is called probation. All messages travel on the
/// first queue pair.
///
/// 1. RailRecovery has finished, and the time of EndpointOptions::probation has passed. An end then
///    creates another queue pair and sends its address (`rail_replaced`). The other end does the
///    same after its own time has passed.
/// 2. An end that has sent and received `rail_replaced` connects its new queue pair, and sends
///    `rail_connected`.
/// 3. An end that has sent and received `rail_connected` writes 0 bytes to the peer. After this
///    write has succeeded, its transfers use the new queue pair.
///
/// If the new queue pair fails, RailRecovery handles this failure, too. The next attempt creates
/// another queue pair. Its number differs, so that late packets and completions of the old queue
/// pair do not reach it.
class RDMABUF_EXPORT RailProbation {
  public:
    RailProbation(SharedState& shared, RailSet& rails, ControlChannel& control, OneSided& one_sided,
                  RailRecovery& recovery) noexcept;
    RailProbation(const RailProbation&) = delete;
    RailProbation& operator=(const RailProbation&) = delete;
    ~RailProbation();

    /// Continues the replacement and the test of each failed queue pair. Called periodically.
    /// @param channel  the channel of these queue pairs
    void check(ChannelState& channel, std::int64_t now) noexcept;
    /// Processes the message `rail_replaced`: the peer has created a new queue pair with this
    /// address. @return false if the message violates the protocol
    [[nodiscard]] bool replaced_arrived(ChannelState& channel, std::size_t rail,
                                        std::span<const std::byte> address) noexcept;
    /// Processes the message `rail_connected`: the peer has connected its new queue pair. @return
    /// false if the message violates the protocol
    [[nodiscard]] bool connected_arrived(std::size_t rail) noexcept;

  private:
    /// The state of the replacement and the test of one queue pair.
    struct Probation;

    /// Returns the Probation object of a queue pair. Creates the object if necessary, and resets it
    /// if the new queue pair has failed, too.
    /// @return nullptr if memory is exhausted
    [[nodiscard]] Probation* probation_of(std::size_t rail) noexcept;
    [[nodiscard]] bool is_due(std::size_t rail, bool peer_waits, std::int64_t now) const noexcept;
    /// Creates a new queue pair and sends its address to the peer. @return false if this has failed
    [[nodiscard]] bool replace(std::size_t rail, Probation& probation) noexcept;
    void connect(ChannelState& channel, std::size_t rail, Probation& probation) noexcept;
    /// Continues the test of a new queue pair that is connected.
    void prove(std::size_t rail, Probation& probation) noexcept;
    [[nodiscard]] bool send(Kind kind, std::size_t rail, std::span<const std::byte> body) noexcept;

    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
    OneSided& one_sided_;
    RailRecovery& recovery_;
    std::array<std::unique_ptr<Probation>, max_channel_rails> probations_;
};

} // namespace rdmabuf::transport::detail
