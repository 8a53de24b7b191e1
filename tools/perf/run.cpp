// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>

#include "../format.hpp"
#include "endpoint.hpp"
#include "options.hpp"
#include "report.hpp"
#include "transfers.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::perf {

namespace {

using bootstrap::Channel;
using Clock = Transfers::Clock;

/// A message that one end sends to the other over the TCP connection, during or after the
/// transfers. It consists of the type, a blank and the text.
struct Message {
    /// "alive", "failed" with the reason, "figures" with the figures, or "finished"; empty if there
    /// is no message.
    std::string type;
    std::string text = {};
};

void send(Channel& control, const Message& message) {
    const std::string bytes = message.type + " " + message.text;
    control.send(std::as_bytes(std::span(bytes)));
}

/// @throws Error ECONNABORTED if the message reports a failure of the other end, and the errors of
///         Channel::receive()
Message receive(Channel& control) {
    const auto bytes = control.receive();
    const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t blank = std::min(all.find(' '), all.size());
    Message message{.type = std::string(all.substr(0, blank)),
                    .text = std::string(all.substr(std::min(blank + 1, all.size())))};
    if (message.type == "failed") {
        throw Error(ECONNABORTED, "rdmabuf perf", "the other end failed: " + message.text);
    }
    return message;
}

/// Receives a message if a message has arrived, without waiting.
/// @throws the errors of receive()
Message receive_now(Channel& control) {
    pollfd descriptor{.fd = control.native(), .events = POLLIN, .revents = 0};
    return ::poll(&descriptor, 1, 0) > 0 ? receive(control) : Message{};
}

constexpr std::array members{&Figures::min,  &Figures::mean, &Figures::p50,    &Figures::p99,
                             &Figures::p999, &Figures::max,  &Figures::elapsed};

std::string to_text(const Figures& figures) {
    std::string text;
    for (const auto member : members) {
        text += fmt::format("{} ", figures.*member);
    }
    return text;
}

/// @throws Error EPROTO if a figure is missing
Figures parse_figures(const std::string& text) {
    Figures figures;
    std::istringstream words(text);
    for (const auto member : members) {
        words >> figures.*member;
    }
    if (!words) {
        throw Error(EPROTO, "rdmabuf perf", "the other end sent no figures");
    }
    return figures;
}

/// Executes all transfers of one end or of both ends. The other end can finish first, and its
/// message can arrive over TCP before the last completion of this end.
/// @param control  the TCP connection to the other end; nullptr if both ends are in this process
/// @return the first message that arrived from the other end before this end finished, if any
/// @throws Error ETIMEDOUT if no completion arrives within the time of --timeout
Message drive(std::span<Transfers> ends, Channel* control, const Options& options) {
    constexpr unsigned polls_between_clocks = 256;
    // During reads and atomics the responder gets no completions, and only waits for messages of
    // the initiator. So the initiator sends heartbeats, which show the responder that the initiator
    // still runs.
    const bool sends_heartbeats = control != nullptr && !is_exchange(options.verb);
    auto last_progress = Clock::now();
    auto next_heartbeat = last_progress + options.timeout / 4;
    unsigned idle = 0;
    Message message;
    const auto finished = [](const Transfers& end) { return end.finished(); };
    for (unsigned polls = 1; !std::ranges::all_of(ends, finished); ++polls) {
        bool progressed = false;
        for (Transfers& end : ends) {
            progressed |= end.progress();
        }
        idle = progressed ? 0 : idle + 1;
        if (idle > polls_between_clocks) {
            // The thread of a software device may need this CPU to execute the requests.
            std::this_thread::yield();
        }
        if (polls % polls_between_clocks != 0) {
            continue;
        }
        const auto now = Clock::now();
        if (idle < polls_between_clocks) {
            last_progress = now;
        } else if (now - last_progress >= options.timeout) {
            throw Error(ETIMEDOUT, "ibv_poll_cq",
                        fmt::format("no completion for {} (--timeout): {}",
                                    format_usec(static_cast<double>(options.timeout.count()) * 1e3),
                                    ends[0].describe()));
        } else if (control != nullptr && message.type.empty()) {
            message = receive_now(*control);
        }
        if (sends_heartbeats && now >= next_heartbeat) {
            send(*control, {.type = "alive"});
            next_heartbeat = now + options.timeout / 4;
        }
    }
    return message;
}

void set_times(Result& result, Transfers& initiator, Verb verb) {
    const int divisor = is_exchange(verb) ? 2 : 1;
    std::vector<std::chrono::nanoseconds> times = initiator.take_times();
    result.figures = summarise(std::move(times), divisor, initiator.elapsed());
}

Result run_loopback(End& here, End& there, const Options& options) {
    // Transfers has no default constructor, so std::array cannot be used.
    std::vector<Transfers> ends;
    ends.emplace_back(here, options, Role::initiator);
    ends.emplace_back(there, options, Role::responder);
    static_cast<void>(drive(ends, nullptr, options));
    const Checked initiator = ends[0].finish();
    const Checked responder = ends[1].finish();
    Result result{.figures = {},
                  .checked = {.data = initiator.data + responder.data,
                              .guard = initiator.guard + responder.guard}};
    set_times(result, ends[0], options.verb);
    return result;
}

Result run_end(End& end, Channel& control, const Options& options) {
    Transfers transfers(end, options, options.role());
    // The barrier ensures that both ends are ready before the first transfer.
    control.barrier();
    try {
        Message message = drive({&transfers, 1}, &control, options);
        Result result;
        if (options.role() == Role::initiator) {
            set_times(result, transfers, options.verb);
            result.checked = transfers.finish();
            send(control, {.type = "figures", .text = to_text(result.figures)});
            // This end waits for "finished" before it destroys its queue pair, because the
            // other end may still need acknowledgements of this queue pair.
            static_cast<void>(receive(control));
            return result;
        }
        while (message.type != "figures") {
            message = receive(control);
        }
        result.figures = parse_figures(message.text);
        result.checked = transfers.finish();
        send(control, {.type = "finished"});
        return result;
    } catch (const std::exception& error) {
        try {
            send(control, {.type = "failed", .text = error.what()});
        } catch (const std::exception&) {
            // If the message cannot be sent, the other end detects the failure when this end closes
            // the connection.
        }
        throw;
    }
}

/// Connects the ends, measures one size, and prints the result.
void run_size(const Options& options, bool first) {
    const auto print = [&](const End& end, const Result& result) {
        const Resources& own = end.resources;
        const Setting setting{.device = own.context.device_name(),
                              .port = own.port,
                              .gid = own.gid,
                              .origin = own.memory.origin()};
        const TextStyle style = style_of_stdout();
        write_stdout(options.json    ? format_json(options, setting, result)
                     : options.sweep ? format_row(options, setting, result, first, style)
                                     : format_table(options, setting, result, style));
    };
    if (options.loopback) {
        auto [here, there] = connect_loopback(options);
        print(here, run_loopback(here, there, options));
        return;
    }
    auto [end, control] = connect_processes(options);
    print(end, run_end(end, control, options));
}

} // namespace

void run(const Options& options) {
    Options each = options;
    if (options.sweep) {
        for (each.size = 1; each.size < options.size; each.size *= 2) {
            run_size(each, each.size == 1);
        }
        each.size = options.size;
    }
    run_size(each, each.size == 1);
}

} // namespace rdmabuf::tools::perf
