// SPDX-License-Identifier: BSD-3-Clause
//
// Connects the two ends of `rdmabuf perf` and their queue pairs.
#include <string>

#include <rdmabuf/error.hpp>
#include <rdmabuf/version.hpp>

#include "endpoint.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::perf {

namespace {

using bootstrap::Channel;

Resources make_resources(const Options& options) {
    const Context context = open_device(options.device);
    return {context, options.device.port.value_or(1), choose_gid(context, options.device), options};
}

Channel meet(const Options& options) {
    if (!options.listen) {
        if (!options.json) {
            fmt::print(stderr, "connecting to rdmabuf perf --listen at {}, port {}\n", options.host,
                       options.tcp_port);
        }
        return Channel::connect(options.host, options.tcp_port, options.timeout);
    }
    bootstrap::Listener listener(options.tcp_port);
    if (!options.json) {
        fmt::print(stderr, "waiting at port {} for rdmabuf perf --connect\n", options.tcp_port);
    }
    return listener.accept(options.timeout);
}

/// Checks that the initiator and the responder have equal options.
/// @throws Error EPROTO if an option differs
void agree(Channel& control, const Options& options) {
    control.agree("the version of rdmabuf", std::string(version()));
    control.agree("--rdma-cm", options.rdma_cm ? "yes" : "no");
    control.agree("--verb", to_string(options.verb));
    control.agree("--qp-type", std::string(to_string(options.qp_type)));
    control.agree("--size", std::to_string(options.size));
    control.agree("--depth", std::to_string(options.depth));
    control.agree("--iterations", std::to_string(options.iterations));
    control.agree("--warmup", std::to_string(options.warmup));
    control.agree("--check", options.check ? "yes" : "no");
}

/// Connects the queue pair to the other end. An SRD queue pair is not connected: this function
/// creates an address handle for the other end instead.
End connect(PreparedQueuePair prepared, Resources resources, const QueuePairAddress& address) {
    if (prepared.address().type != QueuePairType::scalable_reliable_datagram) {
        return {.connection = std::move(prepared).connect(address),
                .resources = std::move(resources),
                .peer = {}};
    }
    AddressHandle handle(resources.pd, address, prepared.connection().path);
    return {.connection = std::move(prepared).activate(),
            .resources = std::move(resources),
            .peer = {},
            .address_handle = std::move(handle),
            .peer_address = address};
}

std::pair<End, Channel> connect_by_tcp(const Options& options) {
    // The resources are created before the TCP connection, so that errors of this end are reported
    // before the other end waits for this end.
    Resources resources = make_resources(options);
    PreparedQueuePair prepared = resources.prepare(options);
    Channel control = meet(options);
    agree(control, options);
    const QueuePairAddress address = control.exchange(prepared.address());
    End end = connect(std::move(prepared), std::move(resources), address);
    // RDMA on SRD queue pairs needs address handles at both ends. After this exchange, the other
    // end has created its address handle.
    end.peer = control.exchange(end.resources.memory.remote());
    return {std::move(end), std::move(control)};
}

/// Creates the resources of this end and connects its queue pair with librdmacm.
/// @param way      a cm::Route or a cm::ConnectionRequest, which selects the device
/// @param connect  a function that connects a prepared queue pair with @p way and returns the
///                 cm::Connection
template <class Way, class Connect>
End connect_over(Way way, Channel& control, const Options& options, Connect connect) {
    const Context context = way.context();
    if (const std::string name = context.device_name();
        !options.device.device.empty() && options.device.device != name) {
        throw UsageError(
            fmt::format("--device {}: the address belongs to {}; leave the option "
                        "out, or leave out --rdma-cm",
                        options.device.device, name));
    }
    Resources resources(context, way.port(), std::nullopt, options);
    PreparedQueuePair prepared = resources.prepare(options);
    cm::Connection connection = connect(std::move(way), std::move(prepared));
    const RemoteRegion peer = control.exchange(resources.memory.remote());
    return {.connection = std::move(connection), .resources = std::move(resources), .peer = peer};
}

std::pair<End, Channel> connect_by_rdma_cm(const Options& options) {
    const auto timeout = options.timeout;
    if (options.listen) {
        // The librdmacm listener is created before the TCP connection, because the other end
        // connects to this listener as soon as the TCP connection exists.
        cm::Listener listener({}, options.tcp_port);
        Channel control = meet(options);
        agree(control, options);
        End end = connect_over(
            listener.next(timeout), control, options, [timeout](auto request, auto prepared) {
                return std::move(request).accept(std::move(prepared), {}, timeout);
            });
        return {std::move(end), std::move(control)};
    }
    Channel control = meet(options);
    agree(control, options);
    End end = connect_over(cm::Route(options.host, options.tcp_port, timeout), control, options,
                           [timeout](auto route, auto prepared) {
                               return std::move(route).connect(std::move(prepared), {}, timeout);
                           });
    return {std::move(end), std::move(control)};
}

} // namespace

std::pair<End, End> connect_loopback(const Options& options) {
    Resources here = make_resources(options);
    Resources there = make_resources(options);
    PreparedQueuePair prepared_here = here.prepare(options);
    PreparedQueuePair prepared_there = there.prepare(options);
    const QueuePairAddress address_here = prepared_here.address();
    const QueuePairAddress address_there = prepared_there.address();
    std::pair<End, End> ends{connect(std::move(prepared_here), std::move(here), address_there),
                             connect(std::move(prepared_there), std::move(there), address_here)};
    ends.first.peer = ends.second.resources.memory.remote();
    ends.second.peer = ends.first.resources.memory.remote();
    return ends;
}

std::pair<End, Channel> connect_processes(const Options& options) {
    return options.rdma_cm ? connect_by_rdma_cm(options) : connect_by_tcp(options);
}

} // namespace rdmabuf::tools::perf
