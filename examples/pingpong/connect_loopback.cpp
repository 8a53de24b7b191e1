// SPDX-License-Identifier: BSD-3-Clause
#include "connect.hpp"
#include "support/open_device.hpp"

namespace pingpong {

std::pair<Endpoint, Endpoint> connect_loopback(const Options& options) {
    const rdmabuf::Context context = examples::open_device(options.device);
    const rdmabuf::GidEntry gid = choose_gid(context, options);
    Station here(context, options.port, gid, options);
    Station there(context, options.port, gid, options);

    auto prepared_here = prepare_queue_pair(here);
    auto prepared_there = prepare_queue_pair(there);
    const auto address_here = prepared_here.address();
    const auto address_there = prepared_there.address();
    const auto region_here = here.memory->region().remote();
    const auto region_there = there.memory->region().remote();
    return {Endpoint(std::move(here), std::move(prepared_here).connect(address_there), region_there,
                     options),
            Endpoint(std::move(there), std::move(prepared_there).connect(address_here), region_here,
                     options)};
}

} // namespace pingpong
