// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "checker.hpp"
#include "endpoint.hpp"

namespace rdmabuf::tools::perf {

/// All transfers of one end. No function waits, so one thread can run both ends.
///
/// The initiator posts a transfer as soon as fewer than --depth of its transfers are unfinished.
/// The responder answers each one that arrives, with data of the same slot. Transfers of a
/// connected queue pair arrive in the order of their numbers. A slot is used again when the answer
/// has arrived and the own request is complete.
class Transfers {
  public:
    using Clock = std::chrono::steady_clock;

    /// Fills the memory. @param end  has to outlive this object
    Transfers(End& end, const Options& options, Role role);

    /// Posts what may be posted, and handles the completions that exist.
    /// @return whether there were any
    /// @throws Error for a failed completion, CheckError
    bool progress();
    [[nodiscard]] bool finished() const noexcept;
    /// "the initiator had 3 of 1100 transfers": the finished transfers, for error texts.
    [[nodiscard]] std::string describe() const;
    /// Compares the memory of this end for the last time, if --check was given. @throws CheckError
    Checked finish();

    /// The initiator's latency of each measured transfer, from before the first request until the
    /// last completion was polled.
    [[nodiscard]] std::vector<std::chrono::nanoseconds> take_times() { return std::move(times_); }
    /// The time from the first measured transfer to the last completion.
    [[nodiscard]] std::chrono::nanoseconds elapsed() const noexcept { return last_ - first_; }

  private:
    [[nodiscard]] bool may_post() const noexcept;
    void post(std::uint64_t transfer);
    [[nodiscard]] Status post_requests(std::uint64_t transfer);
    [[nodiscard]] Status post_srd_request(std::uint64_t transfer, const ibv_sge& outgoing,
                                          const ibv_sge& incoming, RemoteAddress to,
                                          RemoteAddress from) const;
    void handle(const WorkCompletion& completion);
    /// A transfer of the other end, or the answer to one of this end.
    void on_arrival();
    /// The end of the initiator's transfer.
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
    /// Transfers whose last send request is complete.
    std::uint64_t completed_ = 0;
    std::uint64_t arrived_ = 0;

    /// Whether the transfer of each slot of the initiator is in flight. On SRD queue pairs
    /// transfers complete in any order.
    std::vector<bool> in_flight_;
    /// When each transfer in flight began.
    std::vector<Clock::time_point> begun_;
    std::vector<std::chrono::nanoseconds> times_;
    Clock::time_point first_;
    Clock::time_point last_;
};

} // namespace rdmabuf::tools::perf
