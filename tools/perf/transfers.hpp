// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "checker.hpp"
#include "endpoint.hpp"

namespace rdmabuf::tools::perf {

/// Executes the transfers of one end. No function waits, so one thread can run both ends.
///
/// The initiator posts a transfer as soon as fewer than --depth of its transfers are in flight. For
/// send, write and write-imm, the responder answers each transfer with data of the same slot. On a
/// connected queue pair transfers arrive in the order of their numbers. The initiator uses a slot
/// again when the answer has arrived and its own request is complete.
class Transfers {
  public:
    using Clock = std::chrono::steady_clock;

    /// Fills the memory of @p end. @p end must outlive this object.
    Transfers(End& end, const Options& options, Role role);

    /// Posts the transfers that --depth permits, and handles the available completions.
    /// @return true if the call posted a transfer or handled a completion
    /// @throws Error if a completion has failed, CheckError if received data is wrong
    bool progress();
    [[nodiscard]] bool finished() const noexcept;
    /// Returns a text with the number of finished transfers, for error texts: "the initiator had 3
    /// of 1100 transfers".
    [[nodiscard]] std::string describe() const;
    /// After the last transfer, compares the memory of this end with the expected bytes, if --check
    /// was given.
    /// @throws CheckError if a byte is wrong
    Checked finish();

    /// Returns the times that the initiator measured. The time of a transfer begins before its
    /// first request is posted. It ends when the answer has arrived, or without an answer, when the
    /// request has completed. The times are moved out of this object.
    [[nodiscard]] std::vector<std::chrono::nanoseconds> take_times() { return std::move(times_); }
    /// Returns the time from posting the first measured transfer to the end of the last one.
    [[nodiscard]] std::chrono::nanoseconds elapsed() const noexcept { return last_ - first_; }

  private:
    [[nodiscard]] bool may_post() const noexcept;
    void post(std::uint64_t transfer);
    [[nodiscard]] CallStatus post_requests(std::uint64_t transfer);
    [[nodiscard]] CallStatus post_srd_request(std::uint64_t transfer, const ibv_sge& outgoing,
                                              const ibv_sge& incoming, RemoteAddress to,
                                              RemoteAddress from) const;
    void handle(const WorkCompletion& completion);
    /// Handles the arrival of data from the other end: the request of a transfer, or the answer to
    /// a transfer of this end.
    void on_arrival();
    /// Handles the end of a transfer at the initiator: stores the time of the transfer and checks
    /// the received data.
    void on_finished(std::uint64_t transfer);

    End* end_;
    Role role_;
    Verb verb_;
    bool check_;
    std::uint64_t total_;
    std::uint64_t warmup_;
    std::uint64_t depth_;
    Checker checker_;

    std::uint64_t posted_ = 0;
    /// The number of transfers that this end has posted and whose send requests are all complete.
    std::uint64_t completed_ = 0;
    std::uint64_t arrived_ = 0;

    /// For each slot of the initiator, true if the transfer in the slot is in flight. SRD queue
    /// pairs complete transfers in any order.
    std::vector<bool> in_flight_;
    /// For each slot, the time at which the transfer in the slot was posted.
    std::vector<Clock::time_point> begun_;
    std::vector<std::chrono::nanoseconds> times_;
    Clock::time_point first_;
    Clock::time_point last_;
};

} // namespace rdmabuf::tools::perf
