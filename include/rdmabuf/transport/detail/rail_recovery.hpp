// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/one_sided.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Agrees with the peer to leave out queue pairs that have failed, and repeats what they have not
/// transferred. All messages travel on the first queue pair.
///
/// 1. An end whose queue pair has failed (RailSet::leave_out()) polls its last completions. Then it
///    sends `rail_down` with the number of RDMA writes with immediate data that have arrived by
///    this queue pair. It ignores later ones.
/// 2. The other end leaves out its queue pair, too, and also sends `rail_down`.
/// 3. An end that has sent and received `rail_down` knows that its work requests can no longer
///    access memory of the peer. It repeats the lost ones on the first queue pair, and sends
///    `range_repeated` after a range that would have ended with immediate data.
/// 4. It sends `rail_recovered`. A notification of this end that was sent after writes on the queue
///    pair is not reported before this message has arrived.
class RailRecovery {
  public:
    RailRecovery(RailSet& rails, ControlChannel& control, OneSided& one_sided) noexcept
        : rails_(rails), control_(control), one_sided_(one_sided) {}

    /// Returns true if advance() has something to do.
    [[nodiscard]] bool has_work() const noexcept {
        return rails_.recovering() != 0 && any_step_due();
    }
    /// Sends the messages that are due and repeats lost work requests, until the send queue is
    /// full.
    /// @param confirmed  called with the request of each transfer that is complete
    template <class Confirmed>
    void advance(const Confirmed& confirmed) noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if (is_step_due(i) && rails_.can_send()) {
                advance(i, confirmed);
            }
        }
    }
    /// Called periodically. Stops to wait for devices that report no completions.
    void check(std::int64_t now) noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if (!rails_.works(i) && !rails_.is_drained(i) &&
                now - rails_[i].failed_ns > RailSet::drain_limit_ns) {
                rails_.abandon(i);
                one_sided_.abandon(i);
            }
        }
    }

    /// Counts an RDMA write with immediate data.
    /// @return false if it must be ignored
    [[nodiscard]] bool immediate_arrived(std::size_t rail) noexcept {
        if (steps_[rail].down_sent) {
            return false;
        }
        ++rails_[rail].immediates_arrived;
        return true;
    }
    /// Processes the message `rail_down`. @return false if it violates the protocol
    [[nodiscard]] bool down_arrived(std::size_t rail, std::uint64_t arrived) noexcept {
        if (rail == 0 || rail >= rails_.size() || steps_[rail].peer_down) {
            return false;
        }
        const ChannelRail& failed = rails_[rail];
        const auto number = static_cast<std::uint32_t>(arrived);
        if (number != arrived || static_cast<std::int32_t>(failed.immediates_posted - number) < 0) {
            return false; // More writes than this end has posted.
        }
        steps_[rail].peer_down = true;
        steps_[rail].peer_arrived = number;
        if (static_cast<std::int32_t>(number - failed.immediates_confirmed) < 0) {
            rails_.fail(EIO, "a device of the peer has failed and has lost data that had arrived");
            return true;
        }
        rails_.leave_out(rail, EIO, "the peer has left out the queue pair");
        return true;
    }
    /// Processes the message `rail_recovered`. @return false if it violates the protocol
    [[nodiscard]] bool recovered_arrived(std::size_t rail) noexcept {
        if (!peer_may_repeat(rail)) {
            return false;
        }
        steps_[rail].peer_recovered = true;
        one_sided_.recovered_arrived(rail);
        return true;
    }
    /// Returns true if the peer may send `range_repeated` for this queue pair now.
    [[nodiscard]] bool peer_may_repeat(std::size_t rail) const noexcept {
        return rail < rails_.size() && steps_[rail].down_sent && steps_[rail].peer_down &&
               !steps_[rail].peer_recovered;
    }

  private:
    struct Steps {
        bool down_sent = false;
        bool peer_down = false;
        bool peer_recovered = false;
        /// The number in the `rail_down` of the peer.
        std::uint32_t peer_arrived = 0;
    };

    [[nodiscard]] bool any_step_due() const noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if (is_step_due(i)) {
                return true;
            }
        }
        return false;
    }
    [[nodiscard]] bool is_step_due(std::size_t rail) const noexcept {
        return (rails_.recovering() >> rail & 1U) != 0 &&
               (steps_[rail].down_sent ? steps_[rail].peer_down : rails_.is_drained(rail));
    }
    template <class Confirmed>
    void advance(std::size_t rail, const Confirmed& confirmed) noexcept {
        Steps& steps = steps_[rail];
        Header header = {.rails = static_cast<std::uint8_t>(rail)};
        if (!steps.down_sent) {
            header.kind = Kind::rail_down;
            header.value = rails_[rail].immediates_arrived;
            steps.down_sent = control_.send(header, {});
        }
        if (!steps.down_sent || !steps.peer_down) {
            return;
        }
        const auto end_range = [&](const RdmaTransfer& transfer, std::uint64_t length) {
            return rails_.can_send() &&
                   control_.send({.kind = Kind::range_repeated,
                                  .rails = RepeatedRails{.rail = static_cast<std::uint32_t>(rail),
                                                         .rails = transfer.immediate.rails}
                                               .encode(),
                                  .number = transfer.immediate.request,
                                  .value = length},
                                 {});
        };
        if (!rails_.repeat(rail, steps.peer_arrived, end_range, confirmed) ||
            !one_sided_.repeat_lost() || !rails_.can_send()) {
            return;
        }
        header.kind = Kind::rail_recovered;
        header.value = 0;
        if (control_.send(header, {})) {
            rails_.recovered(rail);
        }
    }

    RailSet& rails_;
    ControlChannel& control_;
    OneSided& one_sided_;
    std::array<Steps, max_channel_rails> steps_{};
};

} // namespace rdmabuf::transport::detail
