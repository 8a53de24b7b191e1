// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "engine/implementation.hpp"
#include "objects/srd.hpp"

// Functions of the SRD requester.

namespace softverbs {

/// Time after which a request without a response is retransmitted for the first time. The time
/// doubles with each retransmission.
inline constexpr std::uint64_t first_srd_timeout_ns = 16'000'000;

/// Makes the timer of the queue pair expire at @p deadline at the latest.
void set_timer_before(Engine::Implementation& engine, Qp& qp, std::uint64_t deadline);
/// Sends packets of a request until all its data was sent, or until the request must wait. If the
/// request fails, it is completed. Does nothing if the request has completed.
void transmit_srd(Engine::Implementation& engine, Qp& qp, std::uint64_t number);

} // namespace softverbs
