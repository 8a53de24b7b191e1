// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>

#include "../format.hpp"
#include "endpoint.hpp"
#include "options.hpp"
#include "plot.hpp"
#include "report.hpp"
#include "transfers.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace rdmabuf::tools::perf {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Figures, min, mean, p50, p99, p999, max, elapsed)

namespace {

using bootstrap::Channel;
using Clock = Transfers::Clock;

/// Sends a message over the TCP connection, during or after the transfers. The message is one of
/// the JSON objects {"failed": text}, {"alive": true}, {"figures": {…}} and {"finished": true}.
void send(Channel& control, const nlohmann::json& message) {
    const std::string text = message.dump();
    control.send(std::as_bytes(std::span(text)));
}

/// Receives a message over the TCP connection.
/// @throws Error ECONNABORTED if the message reports a failure of the other end, and the errors of
///         Channel::receive()
nlohmann::json receive(Channel& control) {
    const auto bytes = control.receive();
    nlohmann::json message = nlohmann::json::parse(
        std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    if (message.contains("failed")) {
        throw Error(ECONNABORTED, "rdmabuf perf",
                    "the other end failed: " + message["failed"].get<std::string>());
    }
    return message;
}

/// Receives a message if a message has arrived, without waiting. Otherwise returns null.
/// @throws the errors of receive()
nlohmann::json receive_now(Channel& control) {
    pollfd descriptor{.fd = control.native(), .events = POLLIN, .revents = 0};
    return ::poll(&descriptor, 1, 0) > 0 ? receive(control) : nlohmann::json();
}

/// Executes all transfers of one end or of both ends. The other end can finish first, and its
/// message can arrive over TCP before the last completion of this end.
/// @param control  the TCP connection to the other end; nullptr if both ends are in this process
/// @return the first message that arrived from the other end; null if no message arrived before
///         this end finished
/// @throws Error ETIMEDOUT if no completion arrives within the time of --timeout
nlohmann::json drive(std::span<Transfers> ends, Channel* control, const Options& options) {
    constexpr unsigned polls_between_clocks = 256;
    // During reads and atomics the responder gets no completions, and only waits for messages of
    // the initiator. So the initiator sends heartbeats, which show the responder that the initiator
    // still runs.
    const bool sends_heartbeats = control != nullptr && !is_exchange(options.verb);
    auto last_progress = Clock::now();
    auto next_heartbeat = last_progress + options.timeout / 4;
    unsigned idle = 0;
    nlohmann::json message;
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
        } else if (control != nullptr && message.is_null()) {
            message = receive_now(*control);
        }
        if (sends_heartbeats && now >= next_heartbeat) {
            send(*control, {{"alive", true}});
            next_heartbeat = now + options.timeout / 4;
        }
    }
    return message;
}

/// Sets the figures and the latencies of the initiator.
void set_times(Result& result, Transfers& initiator, Verb verb) {
    const int divisor = is_exchange(verb) ? 2 : 1;
    std::vector<std::chrono::nanoseconds> times = initiator.take_times();
    result.latencies = sorted_latencies(times, divisor);
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
        nlohmann::json message = drive({&transfers, 1}, &control, options);
        Result result;
        if (options.role() == Role::initiator) {
            set_times(result, transfers, options.verb);
            result.checked = transfers.finish();
            send(control, {{"figures", result.figures}});
            // This end waits for {"finished": true} before it destroys its queue pair, because the
            // other end may still need acknowledgements of this queue pair.
            static_cast<void>(receive(control));
            return result;
        }
        while (!message.contains("figures")) {
            message = receive(control);
        }
        result.figures = message["figures"].get<Figures>();
        result.checked = transfers.finish();
        send(control, {{"finished", true}});
        return result;
    } catch (const std::exception& error) {
        try {
            send(control, {{"failed", error.what()}});
        } catch (const std::exception&) {
            // If the message cannot be sent, the other end detects the failure when this end closes
            // the connection.
        }
        throw;
    }
}

} // namespace

void run(const Options& options) {
    const auto print = [&](const End& end, const Result& result) {
        const Resources& own = end.resources;
        const Setting setting{.device = own.context.device_name(),
                              .port = own.port,
                              .gid = own.gid,
                              .origin = own.memory.origin()};
        const std::string text = options.json
                                     ? format_json(options, setting, result)
                                     : format_table(options, setting, result, style_of_stdout());
        write_stdout(text);
        if (!options.plot.empty()) {
            run_gnuplot(plot_script(options, setting, result, result.latencies));
        }
    };
    if (options.loopback) {
        auto [here, there] = connect_loopback(options);
        print(here, run_loopback(here, there, options));
        return;
    }
    auto [end, control] = connect_processes(options);
    print(end, run_end(end, control, options));
}

} // namespace rdmabuf::tools::perf
