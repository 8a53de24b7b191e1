// SPDX-License-Identifier: BSD-3-Clause
#include "station.hpp"

#include <cerrno>

#include <rdmabuf/error.hpp>

namespace pingpong {

namespace {

constexpr std::uint32_t send_depth = 8;

// What would otherwise fail later, and with less to say.
void check_abilities(const rdmabuf::Context& context, std::uint8_t port, const Options& options) {
    const std::string name = context.device_name();
    if (is_atomic(options.verb) && !context.attributes().atomics()) {
        throw UsageError(name + " has no atomics: use another --verb, or another --device");
    }
    const std::uint64_t longest = context.port(port).max_msg_sz;
    if (options.size > longest) {
        throw UsageError("--size " + std::to_string(options.size) + " is over the " +
                         std::to_string(longest) + " bytes that one message of " + name +
                         " can carry: use a smaller --size");
    }
}

const rdmabuf::Context& checked(const rdmabuf::Context& context, std::uint8_t port,
                                const Options& options) {
    check_abilities(context, port, options);
    return context;
}

} // namespace

Station::Station(const rdmabuf::Context& device, std::uint8_t device_port,
                 std::optional<rdmabuf::GidEntry> device_gid, const Options& options)
    : context(checked(device, device_port, options)),
      port(device_port),
      gid(device_gid),
      pd(context),
      cq(context, {.depth = receive_depth + send_depth}),
      layout(make_layout(options.size, options.verb)),
      memory(make_memory(pd, layout, options)) {
    if (options.verb == Verb::send) {
        receive_into.push_back(
            memory->region().sge(layout.incoming, static_cast<std::uint32_t>(layout.size)));
    }
}

rdmabuf::GidEntry choose_gid(const rdmabuf::Context& context, const Options& options) {
    if (const unsigned ports = context.attributes().port_count(); options.port > ports) {
        throw UsageError("--port " + std::to_string(options.port) + " does not exist: " +
                         context.device_name() + " has " + std::to_string(ports));
    }
    if (!options.gid_index) {
        return context.best_gid(options.port);
    }
    std::string used;
    for (const rdmabuf::GidEntry& entry : context.gid_table(options.port)) {
        if (entry.index == *options.gid_index) {
            return entry;
        }
        used += (used.empty() ? "" : ", ") + std::to_string(entry.index) + " (" +
                to_string(entry.gid) + ", " + to_string(entry.type) + ")";
    }
    throw UsageError("--gid-index " + std::to_string(*options.gid_index) + " is not in use on " +
                     context.device_name() + " port " + std::to_string(options.port) +
                     "; those in use: " + used);
}

rdmabuf::PreparedQueuePair prepare_queue_pair(const Station& station) {
    rdmabuf::QueuePairOptions options{.send_cq = station.cq, .recv_cq = station.cq};
    options.max_send_wr = send_depth;
    options.max_recv_wr = receive_depth;
    options.port = station.port;
    if (station.gid) {
        options.gid_index = station.gid->index;
    }
    auto prepared = rdmabuf::QueuePair::prepare(station.pd, options);
    for (std::uint32_t i = 0; i < receive_depth; ++i) {
        prepared.post_recv(station.receive_into, receive_id).throw_if_failed("ibv_post_recv");
    }
    return prepared;
}

} // namespace pingpong
