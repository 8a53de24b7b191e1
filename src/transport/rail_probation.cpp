// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/transport/detail/channel_state.hpp>
#include <rdmabuf/transport/detail/rail_probation.hpp>

#include "transport/queue_pair_options.hpp"

namespace rdmabuf::transport::detail {

struct RailProbation::Probation {
    /// The new queue pair that replaces the failed one at this end. Its address was sent to the
    /// peer. Empty after the queue pair is connected.
    std::optional<PreparedQueuePair> prepared;
    /// The address of the new queue pair of the peer; empty until the peer has sent it.
    std::optional<QueuePairAddress> peer;
    /// True after both ends have sent each other the addresses of their new queue pairs.
    bool exchanged = false;
    bool connected_sent = false;
    bool peer_connected = false;
    /// True after the RDMA write of 0 bytes that tests the new queue pair is posted.
    bool proving = false;
};

RailProbation::RailProbation(SharedState& shared, RailSet& rails, ControlChannel& control,
                             OneSided& one_sided, RailRecovery& recovery) noexcept
    : shared_(shared),
      rails_(rails),
      control_(control),
      one_sided_(one_sided),
      recovery_(recovery) {}

RailProbation::~RailProbation() = default;

void RailProbation::check(ChannelState& channel, std::int64_t now) noexcept {
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (rails_.is_used(i)) {
            continue;
        }
        if (rails_.works(i)) {
            prove(i, *probations_[i]);
            continue;
        }
        Probation* const probation = probation_of(i);
        if (probation == nullptr || !is_due(i, probation->peer.has_value(), now)) {
            continue;
        }
        if (!probation->prepared && replace(i, *probation) && probation->peer) {
            connect(channel, i, *probation);
        }
    }
}

bool RailProbation::is_due(std::size_t rail, bool peer_waits, std::int64_t now) const noexcept {
    const ChannelRail& failed = rails_[rail];
    const SharedRail& device = *shared_.rails[failed.device];
    const std::int64_t time = std::chrono::nanoseconds(shared_.options.probation).count();
    // Each replacement of the queue pair doubles the waiting time. If the peer has already sent the
    // address of its new queue pair, only the initial time applies.
    const std::int64_t wait = peer_waits ? time : time << failed.replacements;
    return time > 0 && recovery_.is_finished(rail) && !failed.abandoned &&
           device.failure == nullptr && !device.port_down && rails_.can_send() &&
           now - failed.failed_ns >= wait;
}

RailProbation::Probation* RailProbation::probation_of(std::size_t rail) noexcept {
    std::unique_ptr<Probation>& probation = probations_[rail];
    if (probation == nullptr) {
        static_cast<void>(attempt([&] { probation = std::make_unique<Probation>(); }));
    } else if (probation->exchanged && recovery_.is_finished(rail)) {
        *probation = {}; // The new queue pair has failed, too: start again.
    }
    return probation.get();
}

bool RailProbation::replace(std::size_t rail, Probation& probation) noexcept {
    const SharedRail& device = *shared_.rails[rails_[rail].device];
    const auto made = attempt([&] {
        probation.prepared.emplace(
            device.pd, channel_queue_pair_options(
                           device, shared_.options,
                           static_cast<std::uint32_t>(rail % rails_.queue_pairs_per_device()),
                           rails_.inline_data()));
    });
    if (!made) {
        rails_.delay_probation(rail);
        return false;
    }
    one_sided_.forget_fences(rail);
    if (!send(Kind::rail_replaced, rail, probation.prepared->address().encode())) {
        probation.prepared.reset();
        return false;
    }
    return true;
}

bool RailProbation::replaced_arrived(ChannelState& channel, std::size_t rail,
                                     std::span<const std::byte> address) noexcept {
    if (rail == 0 || rail >= rails_.size() || rails_.works(rail) || !recovery_.is_finished(rail)) {
        return false;
    }
    const Result<QueuePairAddress> peer = QueuePairAddress::decode(address);
    Probation* const probation = probation_of(rail);
    if (!peer || (probation != nullptr && probation->peer)) {
        return false;
    }
    if (probation == nullptr) {
        rails_.fail(ENOMEM, "no memory for another queue pair");
        return true;
    }
    probation->peer = *peer;
    if (probation->prepared) {
        connect(channel, rail, *probation);
    }
    return true;
}

void RailProbation::connect(ChannelState& channel, std::size_t rail,
                            Probation& probation) noexcept {
    ChannelRail& to = rails_[rail];
    QueuePairTable& table = shared_.rails[to.device]->queue_pairs;
    const std::uint32_t old = to.queue_pair.native()->qp_num;
    const std::uint32_t number = probation.prepared->native()->qp_num;
    probation.exchanged = true;
    recovery_.begin_probation(rail);
    one_sided_.begin_probation(rail);
    Result<QueuePair> pair = attempt([&] {
        QueuePair connected = std::move(*probation.prepared).connect(*probation.peer);
        table.add(number, channel, static_cast<std::uint32_t>(rail));
        return connected;
    });
    probation.prepared.reset();
    if (!pair) {
        rails_.begin_probation(rail, nullptr);
        rails_.leave_out(rail, EIO, "another queue pair in its place could not be connected");
        return;
    }
    table.remove(old);
    rails_.begin_probation(rail, &*pair);
    prove(rail, probation);
}

bool RailProbation::connected_arrived(std::size_t rail) noexcept {
    if (rail >= rails_.size() || probations_[rail] == nullptr || !probations_[rail]->exchanged ||
        std::exchange(probations_[rail]->peer_connected, true)) {
        return false;
    }
    if (rails_.works(rail)) {
        prove(rail, *probations_[rail]);
    }
    return true;
}

void RailProbation::prove(std::size_t rail, Probation& probation) noexcept {
    if (!probation.connected_sent) {
        probation.connected_sent = rails_.can_send() && send(Kind::rail_connected, rail, {});
    }
    if (!probation.connected_sent || !probation.peer_connected) {
        return;
    }
    if (!probation.proving) {
        ibv_send_wr work = make_write({}, control_.probe_target(rail));
        probation.proving = rails_.post(rail, work, nullptr, true);
    } else if (rails_[rail].queue.idle()) {
        rails_.use(rail);
    }
}

bool RailProbation::send(Kind kind, std::size_t rail, std::span<const std::byte> body) noexcept {
    return control_.send({.kind = kind, .rails = static_cast<std::uint8_t>(rail)}, body);
}

} // namespace rdmabuf::transport::detail
