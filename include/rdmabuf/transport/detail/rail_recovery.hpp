// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/one_sided.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Handles the failure of a queue pair other than the first, together with the peer. Both ends stop
/// using the queue pair, and post again on the first queue pair the data that it has not
/// transferred. All messages travel on the first queue pair.
///
/// 1. An end whose queue pair has failed (RailSet::leave_out()) polls the last completions of this
///    queue pair. Then it sends `rail_down` with the number of RDMA writes with immediate data that
///    have arrived on this queue pair. It ignores writes that arrive later.
/// 2. The other end stops using its queue pair, too, and also sends `rail_down`.
/// 3. An end that has sent and received `rail_down` knows that its work requests on the failed
///    queue pair can no longer access memory of the peer. It posts the failed work requests again,
///    on the first queue pair, unless the number in `rail_down` shows that their data has arrived.
///    It sends `range_repeated` in place of the immediate data of these writes.
/// 4. After step 3 for all failed queue pairs, the end posts transfer lists and fences again, and
///    sends `rail_recovered` for each of these queue pairs. If an end has sent a notification after
///    writes on the failed queue pair, the peer reports this notification only after
///    `rail_recovered` has arrived.
class RDMABUF_EXPORT RailRecovery {
  public:
    RailRecovery(RailSet& rails, ControlChannel& control, OneSided& one_sided) noexcept
        : rails_(rails), control_(control), one_sided_(one_sided) {}

    /// Returns true if a step of the recovery of a failed queue pair is due. The send queue of the
    /// first queue pair may have no room for it now.
    [[nodiscard, gnu::always_inline]] bool has_work() const noexcept {
        return rails_.recovering() != 0 && any_step_due();
    }
    /// Sends the messages that are due and posts failed work requests again on the first queue
    /// pair, until its send queue is full.
    /// @param confirmed  called with the request of each transfer that no longer needs the failed
    ///                   queue pair; see RailSet::repeat()
    template <class Confirmed>
    void advance(const Confirmed& confirmed) noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if (is_step_due(i) && rails_.can_send()) {
                advance(i, confirmed);
            }
        }
        if (all_repeated() && one_sided_.repeat_lost()) {
            send_recovered();
        }
    }
    /// Called periodically. Tries again to stop failed queue pairs, and destroys those that are
    /// overdue; see RailSet::is_overdue().
    void check(std::int64_t now) noexcept;

    /// Counts an RDMA write with immediate data that has arrived.
    /// @return false if the write must be ignored, because the peer will send its data again
    [[nodiscard]] bool immediate_arrived(std::size_t rail) noexcept;
    /// Processes the message `rail_down`: the peer has stopped using a queue pair. @return false if
    /// the message violates the protocol
    [[nodiscard]] bool down_arrived(std::size_t rail, std::uint64_t arrived) noexcept;
    /// Processes the message `rail_recovered`: the peer has posted all its failed work requests
    /// again. @return false if the message violates the protocol
    [[nodiscard]] bool recovered_arrived(std::size_t rail) noexcept;
    /// Returns true if both ends have posted again, on the first queue pair, all data that the
    /// failed queue pair has not transferred.
    [[nodiscard]] bool is_finished(std::size_t rail) const noexcept {
        return steps_[rail].peer_recovered && (rails_.recovering() >> rail & 1U) == 0;
    }
    /// Forgets the failure of a queue pair. Must be called before the peer can use the new queue
    /// pair that replaces it.
    void begin_probation(std::size_t rail) noexcept { steps_[rail] = {}; }
    /// Returns true if the peer may send `range_repeated` for this queue pair now: both ends have
    /// sent `rail_down`, and the peer has not sent `rail_recovered`.
    [[nodiscard]] bool peer_may_repeat(std::size_t rail) const noexcept;

  private:
    struct Steps {
        bool down_sent = false;
        bool peer_down = false;
        /// True if the transfers of the failed queue pair are posted again.
        bool repeated = false;
        bool peer_recovered = false;
        /// The number in the `rail_down` message of the peer: how many RDMA writes with immediate
        /// data have arrived there on the failed queue pair.
        std::uint32_t peer_arrived = 0;
    };

    [[nodiscard]] bool is_recovering(std::size_t rail) const noexcept {
        return (rails_.recovering() >> rail & 1U) != 0;
    }
    [[nodiscard]] bool any_step_due() const noexcept;
    /// Returns true if `rail_down` can be sent, or if the transfers of the failed queue pair can be
    /// posted again.
    [[nodiscard]] bool is_step_due(std::size_t rail) const noexcept;
    /// Returns true if queue pairs have failed, and the transfers of all of them are posted again.
    [[nodiscard]] bool all_repeated() const noexcept;
    template <class Confirmed>
    void advance(std::size_t rail, const Confirmed& confirmed) noexcept {
        Steps& steps = steps_[rail];
        if (!steps.down_sent) {
            steps.down_sent = control_.send({.kind = Kind::rail_down,
                                             .rails = static_cast<std::uint8_t>(rail),
                                             .value = rails_[rail].immediates_arrived},
                                            {});
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
        if (rails_.repeat(rail, steps.peer_arrived, end_range, confirmed)) {
            steps.repeated = true;
            one_sided_.failure_agreed(rail, steps.peer_arrived);
        }
    }
    /// Sends the `rail_recovered` messages. The next call sends the messages that cannot be sent
    /// now.
    void send_recovered() noexcept;

    RailSet& rails_;
    ControlChannel& control_;
    OneSided& one_sided_;
    std::array<Steps, max_channel_rails> steps_{};
};

} // namespace rdmabuf::transport::detail
