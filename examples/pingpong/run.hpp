// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "endpoint.hpp"
#include "options.hpp"
#include "statistics.hpp"
#include "validator.hpp"

namespace pingpong {

struct Result {
    /// As measured by the initiator, at both ends.
    Figures figures;
    /// In this process: of both ends in loopback.
    Validated validated;
};

/// Plays both ends in one thread, each step as soon as the one before has caused it: what is
/// measured has no thread switch in it.
[[nodiscard]] Result run_loopback(Endpoint& initiator, Endpoint& responder, const Options& options);

/// Plays the end that the options say; the other is played elsewhere.
[[nodiscard]] Result run_end(Endpoint& endpoint, const Options& options);

} // namespace pingpong
