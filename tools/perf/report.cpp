// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <array>
#include <utility>

#include "../format.hpp"
#include "../json.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::perf {

namespace {

constexpr std::size_t columns_of_table = 69;

const char* latency_meaning(Verb verb) {
    return is_exchange(verb) ? "half a round trip" : "the whole operation";
}

std::string describe_ends(const Options& options) {
    if (options.loopback) {
        return "both ends in this process";
    }
    return fmt::format("{}, connected by {}",
                       options.listen ? "with a peer" : "with " + options.host,
                       options.connection());
}

/// Describes the registered memory, for example "dmabuf from drm (/dev/dri/card0, vgem)".
std::string describe_memory(const Origin& origin) {
    return origin.path + (origin.exporter.empty() ? "" : " from " + origin.exporter) +
           (origin.detail.empty() ? "" : " (" + origin.detail + ")");
}

std::string describe_device(const Setting& setting) {
    std::string text = fmt::format("{} port {}", setting.device, setting.port);
    if (setting.gid) {
        text += fmt::format(", GID {} {} ({})", setting.gid->index, to_string(setting.gid->gid),
                            to_string(setting.gid->type));
    }
    return text;
}

std::string verdict(const Options& options, const Result& result) {
    if (!options.check) {
        return fmt::format("not checked: {} transfers", options.iterations);
    }
    if (result.checked.data == 0) {
        return fmt::format("checked {} bytes that the other end had to leave unchanged",
                           result.checked.guard);
    }
    return fmt::format("checked {} bytes", result.checked.data);
}

struct Rates {
    double messages;
    double bytes;
};
Rates rates_of(const Options& options, const Figures& figures) {
    const double messages = figures.elapsed > 0 ? options.iterations * 1e6 / figures.elapsed : 0;
    return {.messages = messages, .bytes = messages * static_cast<double>(options.size)};
}

} // namespace

std::string format_row(const Options& options, const Setting& setting, const Result& result,
                       bool first, const TextStyle& style) {
    std::string out;
    if (first) {
        out +=
            wrap(style,
                 fmt::format("{}, {} in flight, {}; latency is {}{}", to_string(options.verb),
                             options.depth, describe_ends(options), latency_meaning(options.verb),
                             options.check ? ", with the time of --check" : ""),
                 "", "");
        out += wrap(style,
                    fmt::format("{}, registered as {}, on {}", options.memory.type,
                                describe_memory(setting.origin), describe_device(setting)),
                    "", "");
        out += fmt::format("\n{:>10}{:>11}{:>11}{:>14}{:>12}{:>16}\n", "size", "typical", "99 %",
                           "bandwidth", "rate", "checked bytes");
    }
    const Rates rates = rates_of(options, result.figures);
    return out + fmt::format("{:>10}{:>11}{:>11}{:>14}{:>12}{:>16}\n", format_size(options.size),
                             format_usec(result.figures.p50), format_usec(result.figures.p99),
                             format_bandwidth(rates.bytes), format_rate(rates.messages),
                             options.check ? fmt::format("{}", result.checked.data) : "-");
}

std::string format_table(const Options& options, const Setting& setting, const Result& result,
                         const TextStyle& style) {
    const Figures& figures = result.figures;
    const Rates rates = rates_of(options, figures);
    const bool narrow = style.width < columns_of_table;
    std::string each;
    if (is_exchange(options.verb)) {
        each = (narrow ? "\n" + std::string(16, ' ') : "   ") + "in each direction";
    }
    const auto line = [&style](const char* name, const std::string& value) {
        return wrap(style, value, fmt::format("  {:<14}", name), std::string(16, ' '));
    };
    std::string out;
    out += line("transfer",
                fmt::format("{} of {}, {} in flight, {}", to_string(options.verb),
                            format_size(options.size), options.depth, describe_ends(options)));
    out += line("iterations",
                fmt::format("{} after {} to warm up", options.iterations, options.warmup));
    out += line("memory", fmt::format("{}, registered as {}", options.memory.type,
                                      describe_memory(setting.origin)));
    out += line("device", describe_device(setting)) + "\n";
    const std::array<std::pair<const char*, double>, 5> latencies{{{"min", figures.min},
                                                                   {"typical", figures.p50},
                                                                   {"99 %", figures.p99},
                                                                   {"99.9 %", figures.p999},
                                                                   {"max", figures.max}}};
    if (narrow) {
        for (const auto& [name, latency] : latencies) {
            out += fmt::format("  {:<14}{:>9}\n", name, format_usec(latency));
        }
    } else {
        std::string names(16, ' ');
        std::string values = "  latency       ";
        for (const auto& [name, latency] : latencies) {
            names += fmt::format("{:>9}  ", name);
            values += fmt::format("{:>9}  ", format_usec(latency));
        }
        names.erase(names.find_last_not_of(' ') + 1);
        values.erase(values.find_last_not_of(' ') + 1);
        out += names + "\n" + values + "\n";
    }
    out += line("", fmt::format("of {}{}", latency_meaning(options.verb),
                                options.check ? ", with the time of --check" : ""));
    out += fmt::format("  bandwidth     {:>9}{}\n", format_bandwidth(rates.bytes), each);
    out += fmt::format("  message rate  {:>9}{}\n\n", format_rate(rates.messages), each);
    out += wrap(style,
                fmt::format("{} over {} on {}", verdict(options, result),
                            describe_memory(setting.origin), setting.device),
                "", "");
    return out;
}

std::string format_json(const Options& options, const Setting& setting, const Result& result) {
    const Figures& figures = result.figures;
    const Rates rates = rates_of(options, figures);
    Json json;
    json["memory"] = options.memory.type;
    json["exporter"] = or_null(setting.origin.exporter);
    json["exporter_detail"] = or_null(setting.origin.detail);
    json["path"] = setting.origin.path;
    json["device"] = setting.device;
    json["port"] = setting.port;
    json["gid"] = or_null(setting.gid ? to_string(setting.gid->gid) : "");
    json["qp_type"] = rdmabuf::to_string(options.qp_type);
    json["verb"] = to_string(options.verb);
    json["role"] = options.loopback ? "loopback" : to_string(options.role());
    json["connection"] = options.connection();
    json["size"] = options.size;
    json["depth"] = options.depth;
    json["iterations"] = options.iterations;
    json["warmup"] = options.warmup;
    json["checked_bytes"] = result.checked.data;
    json["guard_bytes"] = result.checked.guard;
    json["latency_of"] = latency_meaning(options.verb);
    json["latency_usec"] = {{"min", figures.min},   {"p50", figures.p50}, {"p99", figures.p99},
                            {"p999", figures.p999}, {"max", figures.max}, {"mean", figures.mean}};
    json["elapsed_usec"] = figures.elapsed;
    json["bandwidth_MBps"] = rates.bytes / 1e6;
    json["messages_per_second"] = rates.messages;
    return json.dump();
}

} // namespace rdmabuf::tools::perf
