// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

#include "endpoint.hpp"
#include "options.hpp"

namespace pingpong {

/// Both ends, in this process: the initiator and the responder.
[[nodiscard]] std::pair<Endpoint, Endpoint> connect_loopback(const Options& options);

/// One end, by a TCP connection to the other.
/// @throws rdmabuf::Error EPROTO when the other was started with other terms
[[nodiscard]] Endpoint connect_tcp(const Options& options);

/// One end, by librdmacm.
/// @throws rdmabuf::Error EPROTO when the other was started with other terms
[[nodiscard]] Endpoint connect_rdmacm(const Options& options);

} // namespace pingpong
