// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/bootstrap.hpp>

#include "connect.hpp"
#include "support/open_device.hpp"
#include "terms.hpp"

namespace pingpong {

namespace {

rdmabuf::bootstrap::Channel meet(const Options& options) {
    if (options.mode == Mode::connect) {
        return rdmabuf::bootstrap::Channel::connect(options.host, options.tcp_port,
                                                    options.timeout);
    }
    rdmabuf::bootstrap::Listener listener(options.tcp_port);
    return listener.accept(options.timeout);
}

} // namespace

Endpoint connect_tcp(const Options& options) {
    // What can fail here fails before the other end is kept waiting.
    const rdmabuf::Context context = examples::open_device(options.device);
    Station station(context, options.port, choose_gid(context, options), options);
    auto prepared = prepare_queue_pair(station);

    auto channel = meet(options);
    for (const Term& term : terms_of(options)) {
        channel.agree(term.name, term.value);
    }
    const auto address = channel.exchange(prepared.address());
    const auto region = channel.exchange(station.memory->region().remote());
    auto queue_pair = std::move(prepared).connect(address);
    // Nobody sends before both can receive.
    channel.barrier();
    return {std::move(station), std::move(queue_pair), region, options};
}

} // namespace pingpong
