// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/cm.hpp>

#include "connect.hpp"
#include "terms.hpp"

namespace pingpong {

namespace {

// The address decides on the device; the option can only be wrong about it.
void check_device(const rdmabuf::Context& context, const Options& options) {
    if (const std::string name = context.device_name();
        !options.device.empty() && options.device != name) {
        throw UsageError("--device " + options.device + " is not where the address leads: " + name +
                         " is; leave the option out, or use --bootstrap tcp");
    }
}

// A Route or a ConnectionRequest, whichever end this is, becomes a connection in the same way.
template <class Way, class Finish>
Endpoint connect_over(Way way, const Options& options, Finish finish) {
    const rdmabuf::Context context = way.context();
    check_device(context, options);
    Station station(context, way.port(), std::nullopt, options);
    const auto hello = Hello::from(options, station.memory->region().remote()).encode();
    auto prepared = prepare_queue_pair(station);
    rdmabuf::cm::Connection connection =
        finish(std::move(way), std::move(prepared), std::span<const std::byte>(hello));
    // Only now, so that both ends know what the other was started with.
    const Hello theirs = Hello::decode(connection.private_data());
    theirs.check(options);
    return {std::move(station), std::move(connection), theirs.region, options};
}

} // namespace

Endpoint connect_rdmacm(const Options& options) {
    const auto timeout = options.timeout;
    if (options.mode == Mode::connect) {
        return connect_over(rdmabuf::cm::Route(options.host, options.tcp_port, timeout), options,
                            [timeout](auto route, auto prepared, auto hello) {
                                return std::move(route).connect(std::move(prepared), hello,
                                                                timeout);
                            });
    }
    rdmabuf::cm::Listener listener({}, options.tcp_port);
    return connect_over(listener.next(timeout), options,
                        [timeout](auto request, auto prepared, auto hello) {
                            return std::move(request).accept(std::move(prepared), hello, timeout);
                        });
}

} // namespace pingpong
