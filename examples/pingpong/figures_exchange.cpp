// SPDX-License-Identifier: BSD-3-Clause
#include "figures_exchange.hpp"

#include <array>
#include <bit>
#include <cerrno>

#include <rdmabuf/error.hpp>

namespace pingpong {

namespace {

constexpr std::array fields{&Figures::min, &Figures::mean, &Figures::p50,
                            &Figures::p99, &Figures::p999, &Figures::max};
static_assert(fields.size() < receive_depth);

} // namespace

void send_figures(Endpoint& endpoint, const Figures& figures) {
    for (const auto field : fields) {
        endpoint.send_immediate(std::bit_cast<std::uint32_t>(static_cast<float>(figures.*field)));
    }
}

Figures receive_figures(Endpoint& endpoint) {
    Figures figures;
    for (const auto field : fields) {
        const Endpoint::Message message = endpoint.await_message("the figures");
        if (!message.immediate) {
            throw rdmabuf::Error(
                EPROTO, "ibv_poll_cq",
                "the ends are out of step: waiting for the figures, but there came "
                "data");
        }
        figures.*field = static_cast<double>(std::bit_cast<float>(*message.immediate));
    }
    return figures;
}

} // namespace pingpong
