// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "endpoint.hpp"
#include "statistics.hpp"

namespace pingpong {

/// Tells the other end what was measured; both keep it to the seven digits of a float. The figures
/// travel as immediate data, which needs no memory and so works whatever memory the ends chose.
void send_figures(Endpoint& endpoint, const Figures& figures);
[[nodiscard]] Figures receive_figures(Endpoint& endpoint);

} // namespace pingpong
