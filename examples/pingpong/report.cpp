// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <array>
#include <sstream>

#include "support/units.hpp"

#include <nlohmann/json.hpp>

namespace pingpong {

namespace {

std::string describe_mode(const Options& options) {
    if (options.mode == Mode::loopback) {
        return "both ends in this process";
    }
    return std::string(options.mode == Mode::connect ? "with " + options.host : "with a peer") +
           ", by " + to_string(options.bootstrap);
}

// "drm (/dev/dri/card0, vgem)"
std::string describe_source(const Origin& origin) {
    if (origin.exporter.empty()) {
        return origin.path == "dm" ? "the device's own" : "the host's";
    }
    return origin.detail.empty() ? origin.exporter : origin.exporter + " (" + origin.detail + ")";
}

std::string describe_way(const Setting& setting) {
    const Origin& origin = setting.origin;
    return "over " + origin.path +
           (origin.exporter.empty() ? "" : " from " + describe_source(origin)) + " on " +
           setting.device;
}

std::string verdict(const Options& options, const Result& result) {
    if (!options.validate) {
        return "not validated: " + std::to_string(options.iterations) + " transfers";
    }
    if (result.validated.data == 0) {
        // What is read arrives at the other end.
        return "the other end validates; nothing else was touched in " +
               std::to_string(result.validated.guard) + " bytes";
    }
    return "validated " + std::to_string(result.validated.data) + " bytes";
}

std::string pad(const std::string& text, std::size_t width) {
    return std::string(width - std::min(width, text.size()), ' ') + text;
}

} // namespace

std::string format_table(const Options& options, const Setting& setting, const Result& result) {
    constexpr std::size_t column = 11;
    const Figures& figures = result.figures;
    const std::array latencies{figures.p50, figures.p99, figures.p999, figures.max};

    std::ostringstream out;
    out << "  verb        " << to_string(options.verb) << ", "
        << examples::format_size(options.size) << ", " << options.iterations
        << (options.iterations == 1 ? " time" : " times") << " after " << options.warmup
        << " to warm up\n"
        << "  ends        " << describe_mode(options) << "\n"
        << "  memory      " << describe_source(setting.origin) << "\n"
        << "  path        " << setting.origin.path << "\n"
        << "  device      " << setting.device << " port " << unsigned{setting.port};
    if (setting.gid) {
        out << ", GID " << unsigned{setting.gid->index} << " " << to_string(setting.gid->gid)
            << " (" << to_string(setting.gid->type) << ")";
    }
    out << "\n\n  latency     ";
    for (const char* name : {"p50", "p99", "p99.9", "max"}) {
        out << pad(name, column);
    }
    out << "\n              ";
    for (const double usec : latencies) {
        out << pad(examples::format_usec(usec), column);
    }
    out << "   of " << latency_meaning(options.verb) << "\n"
        << "  bandwidth   "
        << pad(examples::format_bandwidth(bandwidth_of(options.size, figures.mean)), column)
        << "   one transfer at a time\n\n";
    out << verdict(options, result) << " " << describe_way(setting) << "\n";
    return out.str();
}

std::string format_json(const Options& options, const Setting& setting, const Result& result) {
    const Figures& figures = result.figures;
    nlohmann::ordered_json json;
    const auto or_null = [](const std::string& text) {
        return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
    };
    json["memory"] = to_string(options.memory.type);
    json["exporter"] = or_null(setting.origin.exporter);
    json["exporter_detail"] = or_null(setting.origin.detail);
    json["path"] = setting.origin.path;
    json["device"] = setting.device;
    json["port"] = setting.port;
    json["gid"] = or_null(setting.gid ? to_string(setting.gid->gid) : std::string());
    json["verb"] = to_string(options.verb);
    json["role"] = options.mode == Mode::loopback ? "loopback" : to_string(options.role());
    json["bootstrap"] =
        or_null(options.mode == Mode::loopback ? std::string() : to_string(options.bootstrap));
    json["size"] = options.size;
    json["iterations"] = options.iterations;
    json["warmup"] = options.warmup;
    json["validated_bytes"] = result.validated.data;
    json["guard_bytes"] = result.validated.guard;
    json["latency_of"] = latency_meaning(options.verb);
    json["latency_usec"] = {{"p50", figures.p50}, {"p99", figures.p99}, {"p999", figures.p999},
                            {"max", figures.max}, {"min", figures.min}, {"mean", figures.mean}};
    json["bandwidth_MBps"] = bandwidth_of(options.size, figures.mean);
    return json.dump(2) + "\n";
}

} // namespace pingpong
