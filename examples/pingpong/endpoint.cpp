// SPDX-License-Identifier: BSD-3-Clause
#include "endpoint.hpp"

#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <thread>

#include <rdmabuf/error.hpp>
#include <rdmabuf/work_completion.hpp>

#include "support/units.hpp"

namespace pingpong {

namespace {

using Clock = std::chrono::steady_clock;

// What a failing end spends on telling the other.
constexpr std::chrono::seconds farewell{1};

std::string seconds(std::chrono::milliseconds time) {
    return examples::format_usec(static_cast<double>(time.count()) * 1e3);
}

[[noreturn]] void out_of_step(const Endpoint::Message& message, const char* expected) {
    std::string found = std::to_string(message.length) + " bytes of data";
    if (message.immediate) {
        if (*message.immediate >> 24 == static_cast<std::uint32_t>(Word::failed)) {
            throw rdmabuf::Error(ECONNABORTED, "ibv_poll_cq",
                                 "the other end has failed: its output says why");
        }
        found = "word " + std::to_string(*message.immediate >> 24) + ", detail " +
                std::to_string(*message.immediate & 0xffffff);
    }
    throw rdmabuf::Error(EPROTO, "ibv_poll_cq",
                         std::string("the ends are out of step: waiting for ") + expected +
                             ", but there came " + found);
}

} // namespace

Endpoint::Endpoint(Station station, Connection connection, const rdmabuf::RemoteRegion& peer,
                   const Options& options)
    : connection_(std::move(connection)),
      station_(std::move(station)),
      peer_(peer),
      timeout_(options.timeout) {}

const rdmabuf::QueuePair& Endpoint::queue_pair() const noexcept {
    if (const auto* own = std::get_if<rdmabuf::QueuePair>(&connection_)) {
        return *own;
    }
    return std::get_if<rdmabuf::cm::Connection>(&connection_)->queue_pair();
}

bool Endpoint::collect() {
    std::array<rdmabuf::WorkCompletion, 8> completions; // NOLINT(*-member-init): polling fills it
    const int count = station_.cq.poll(completions);
    if (count < 0) {
        throw rdmabuf::Error(EIO, "ibv_poll_cq", "the completion queue is broken");
    }
    for (const rdmabuf::WorkCompletion& completion :
         std::span(completions).first(static_cast<std::size_t>(count))) {
        if (!rdmabuf::succeeded(completion)) {
            throw rdmabuf::Error(EIO, "ibv_poll_cq", rdmabuf::describe(completion));
        }
        if (completion.wr_id == send_id) {
            --sends_outstanding_;
            continue;
        }
        ++receives_used_;
        Message message{.immediate = std::nullopt, .length = completion.byte_len};
        if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) {
            message.immediate = be32toh(completion.imm_data);
        }
        inbox_.push_back(message);
    }
    return count > 0;
}

template <class Condition>
void Endpoint::wait_until(Condition condition, const char* what) {
    // A short wait is spent polling. In a longer one a software device needs the processor, and may
    // have no other than this one; with nobody else to run, yielding costs little.
    constexpr unsigned polls_before_yielding = 256;
    constexpr unsigned polls_between_looks_at_the_clock = 256;
    std::optional<Clock::time_point> deadline;
    for (unsigned polls = 1; !condition(); ++polls) {
        if (collect() || polls < polls_before_yielding) {
            continue;
        }
        std::this_thread::yield();
        if (polls % polls_between_looks_at_the_clock != 0) {
            continue;
        }
        const auto now = Clock::now();
        if (!deadline) {
            deadline = now + timeout_;
        } else if (now >= *deadline) {
            gone_ = true;
            throw rdmabuf::Error(ETIMEDOUT, "ibv_poll_cq",
                                 "waited " + seconds(timeout_) + " (--timeout) for " + what +
                                     ": the other end has gone, or is stuck");
        }
    }
}

void Endpoint::posted(rdmabuf::Status status, const char* function, unsigned count) {
    status.throw_if_failed(function);
    sends_outstanding_ += count;
}

void Endpoint::await_sent(const char* what) {
    wait_until([this] { return sends_outstanding_ == 0; }, what);
}

Endpoint::Message Endpoint::await_message(const char* what) {
    wait_until([this] { return !inbox_.empty(); }, what);
    const Message message = inbox_.front();
    inbox_.pop_front();
    return message;
}

void Endpoint::await_data(std::uint32_t length, const char* what) {
    const Message message = await_message(what);
    if (message.immediate || message.length != length) {
        out_of_step(message, what);
    }
}

void Endpoint::replenish_receives() {
    for (; receives_used_ > 0; --receives_used_) {
        queue_pair().post_recv(station_.receive_into, receive_id).throw_if_failed("ibv_post_recv");
    }
}

void Endpoint::tell(Word word, std::uint32_t detail) {
    send_immediate(immediate(word, detail));
}

void Endpoint::send_immediate(std::uint32_t value) {
    posted(queue_pair().post_send_imm(std::span<const ibv_sge>(), value, {.wr_id = send_id}),
           "ibv_post_send");
    await_sent("the acknowledgement of a message");
}

void Endpoint::await(Word word, std::uint32_t detail, const char* what) {
    for (;;) {
        const Message message = await_message(what);
        if (message.immediate == immediate(word, detail)) {
            return;
        }
        if (message.immediate != immediate(Word::alive, 0)) {
            out_of_step(message, what);
        }
        replenish_receives();
    }
}

void Endpoint::tell_failed() noexcept {
    if (gone_) {
        return;
    }
    try {
        timeout_ = std::min<std::chrono::milliseconds>(timeout_, farewell);
        tell(Word::failed);
    } catch (const std::exception&) {
        // The other end will notice by its timeout, and this one has its own error to report.
        return;
    }
}

} // namespace pingpong
