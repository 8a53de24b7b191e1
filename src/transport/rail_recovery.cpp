// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>

#include <rdmabuf/transport/detail/rail_recovery.hpp>

namespace rdmabuf::transport::detail {

void RailRecovery::check(std::int64_t now) noexcept {
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (rails_.works(i) || rails_.is_drained(i)) {
            continue;
        }
        rails_.stop_again(i);
        if (rails_.is_overdue(i, now) && rails_.abandon(i)) {
            one_sided_.abandon(i);
        }
    }
}

bool RailRecovery::immediate_arrived(std::size_t rail) noexcept {
    if (steps_[rail].down_sent) {
        return false;
    }
    ++rails_[rail].immediates_arrived;
    return true;
}

bool RailRecovery::down_arrived(std::size_t rail, std::uint64_t arrived) noexcept {
    if (rail == 0 || rail >= rails_.size() || steps_[rail].peer_down) {
        return false;
    }
    const ChannelRail& failed = rails_[rail];
    const auto number = static_cast<std::uint32_t>(arrived);
    if (number != arrived || RailSet::is_before(failed.immediates_posted, number)) {
        return false; // The peer has counted more writes than this end has posted.
    }
    steps_[rail].peer_down = true;
    steps_[rail].peer_arrived = number;
    if (RailSet::is_before(number, failed.immediates_confirmed)) {
        rails_.fail(EIO, "a device of the peer has failed and has lost data that had arrived");
        return true;
    }
    rails_.leave_out(rail, EIO, "the peer has left out the queue pair");
    return true;
}

bool RailRecovery::recovered_arrived(std::size_t rail) noexcept {
    if (!peer_may_repeat(rail)) {
        return false;
    }
    steps_[rail].peer_recovered = true;
    one_sided_.recovered_arrived(rail);
    return true;
}

bool RailRecovery::peer_may_repeat(std::size_t rail) const noexcept {
    return rail < rails_.size() && steps_[rail].down_sent && steps_[rail].peer_down &&
           !steps_[rail].peer_recovered;
}

bool RailRecovery::any_step_due() const noexcept {
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (is_step_due(i)) {
            return true;
        }
    }
    return all_repeated();
}

bool RailRecovery::is_step_due(std::size_t rail) const noexcept {
    const Steps& steps = steps_[rail];
    return is_recovering(rail) && !steps.repeated &&
           (steps.down_sent ? steps.peer_down : rails_.is_drained(rail));
}

bool RailRecovery::all_repeated() const noexcept {
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (is_recovering(i) && !steps_[i].repeated) {
            return false;
        }
    }
    return rails_.recovering() != 0;
}

void RailRecovery::send_recovered() noexcept {
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (is_recovering(i) && rails_.can_send() &&
            control_.send({.kind = Kind::rail_recovered, .rails = static_cast<std::uint8_t>(i)},
                          {})) {
            rails_.recovered(i);
        }
    }
}

} // namespace rdmabuf::transport::detail
