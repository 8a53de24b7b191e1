// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "engine/implementation.hpp"
#include "objects/srd.hpp"

namespace softverbs {

/// Time in nanoseconds after which a request without a response is retransmitted for the first
/// time. The time doubles with each retransmission.
inline constexpr std::uint64_t first_srd_timeout_ns = 16'000'000;

/// Makes the timer of the queue pair expire at @p deadline (nanoseconds of fabric::now_ns()) or
/// earlier.
void set_timer_before(Engine::Implementation& engine, Qp& qp, std::uint64_t deadline);
/// Sends packets of the SRD request with the number @p number until all its data was sent, or until
/// the request must wait. If the request fails, completes it with an error. Does nothing if the
/// request has already completed.
void transmit_srd(Engine::Implementation& engine, Qp& qp, std::uint64_t number);

} // namespace softverbs
