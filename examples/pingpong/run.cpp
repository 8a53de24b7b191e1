// SPDX-License-Identifier: BSD-3-Clause
#include "run.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "figures_exchange.hpp"
#include "progress.hpp"
#include "side.hpp"

namespace pingpong {

namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t transfers(const Options& options) noexcept {
    return std::uint64_t{options.warmup} + options.iterations;
}

// The times of the transfers that count.
class Watch {
  public:
    explicit Watch(const Options& options) : warmup_(options.warmup) {
        times_.reserve(options.iterations);
    }
    template <class Transfer>
    void time(std::uint64_t number, Transfer transfer) {
        const auto start = Clock::now();
        transfer();
        const auto end = Clock::now();
        if (number >= warmup_) {
            times_.push_back(end - start);
        }
    }
    [[nodiscard]] Figures figures(Verb verb) {
        return summarise(std::move(times_), is_exchange(verb) ? 2 : 1);
    }

  private:
    std::uint64_t warmup_;
    std::vector<std::chrono::nanoseconds> times_;
};

// Does one transfer after the other. An error says which one it happened in.
template <class Transfer>
void for_each_transfer(const Options& options, Transfer transfer) {
    const std::uint64_t total = transfers(options);
    Progress progress(total);
    for (std::uint64_t number = 0; number < total; ++number) {
        try {
            transfer(number);
        } catch (const rdmabuf::Error& error) {
            throw std::runtime_error("transfer " + std::to_string(number) + " of " +
                                     std::to_string(total) + ": " + error.what());
        }
        progress.update(number + 1);
    }
}

// Where the responder's program sees nothing of the transfers, it must still be told that they go
// on, and be told of each one that it has to check.
class Heartbeat {
  public:
    Heartbeat(Endpoint& endpoint, const Options& options)
        : endpoint_(&endpoint), each_(options.validate), next_(Clock::now() + interval()) {}

    void after(std::uint64_t number) {
        if (each_) {
            endpoint_->tell(Word::done, static_cast<std::uint32_t>(number));
        } else if (Clock::now() >= next_) {
            endpoint_->tell(Word::alive);
            next_ = Clock::now() + interval();
        }
    }
    void finish() {
        if (!each_) {
            endpoint_->tell(Word::done);
        }
    }

  private:
    [[nodiscard]] std::chrono::milliseconds interval() const { return endpoint_->timeout() / 4; }

    Endpoint* endpoint_;
    bool each_;
    Clock::time_point next_;
};

Result run_initiator(Side& side, const Options& options) {
    Endpoint& endpoint = side.endpoint();
    Watch watch(options);
    Heartbeat heartbeat(endpoint, options);
    const bool fetches = !is_exchange(options.verb);
    endpoint.await(Word::ready, 0, "the other end to be ready");
    for_each_transfer(options, [&](std::uint64_t number) {
        side.prepare(number);
        if (options.validate && number > 0) {
            endpoint.await(Word::ready, static_cast<std::uint32_t>(number),
                           "the other end to be ready");
        }
        watch.time(number, [&] {
            side.begin(number);
            side.complete(number);
        });
        side.check(number);
        if (fetches) {
            heartbeat.after(number);
        }
    });
    if (fetches) {
        heartbeat.finish();
    }
    const Figures figures = watch.figures(options.verb);
    send_figures(endpoint, figures);
    return {.figures = figures, .validated = side.validated()};
}

Result run_responder(Side& side, const Options& options) {
    Endpoint& endpoint = side.endpoint();
    const bool fetched = !is_exchange(options.verb);
    for_each_transfer(options, [&](std::uint64_t number) {
        side.prepare(number);
        if (options.validate || number == 0) {
            endpoint.tell(Word::ready, static_cast<std::uint32_t>(number));
        }
        side.answer(number);
        if (fetched && options.validate) {
            endpoint.await(Word::done, static_cast<std::uint32_t>(number),
                           "the initiator to finish its transfer");
        }
        side.check(number);
    });
    if (fetched && !options.validate) {
        endpoint.await(Word::done, 0, "the initiator to finish");
    }
    side.endpoint().replenish_receives();
    const Figures figures = receive_figures(endpoint);
    return {.figures = figures, .validated = side.validated()};
}

} // namespace

Result run_loopback(Endpoint& initiator, Endpoint& responder, const Options& options) {
    Side here(initiator, Role::initiator, options);
    Side there(responder, Role::responder, options);
    Watch watch(options);
    for_each_transfer(options, [&](std::uint64_t number) {
        here.prepare(number);
        there.prepare(number);
        watch.time(number, [&] {
            here.begin(number);
            there.answer(number);
            here.complete(number);
        });
        here.check(number);
        there.check(number);
    });
    return {.figures = watch.figures(options.verb),
            .validated = {.data = here.validated().data + there.validated().data,
                          .guard = here.validated().guard + there.validated().guard}};
}

Result run_end(Endpoint& endpoint, const Options& options) {
    Side side(endpoint, options.role(), options);
    try {
        return options.role() == Role::initiator ? run_initiator(side, options)
                                                 : run_responder(side, options);
    } catch (...) {
        endpoint.tell_failed();
        throw;
    }
}

} // namespace pingpong
