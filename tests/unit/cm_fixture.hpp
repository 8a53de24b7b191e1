// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include <rdmabuf/cm.hpp>

#include "standin/connections.hpp"
#include "standin_fixture.hpp"

namespace rdmabuf::testing {

/// For tests on the stand-ins for libibverbs and librdmacm: every address leads to the one device.
class ConnectionTest : public StandinTest {
  protected:
    static constexpr auto long_enough = std::chrono::seconds(20);

    ConnectionTest() { standin::reset_connections(basics_.context.native()); }

    [[nodiscard]] PreparedQueuePair prepare() const {
        return QueuePair::prepare(basics_.pd, {.send_cq = basics_.cq, .recv_cq = basics_.cq});
    }
    [[nodiscard]] static cm::Route route(std::chrono::milliseconds timeout = long_enough) {
        return {"192.0.2.9", 4711, timeout};
    }
    [[nodiscard]] cm::Connection connected() const {
        return route().connect(prepare(), {}, long_enough);
    }
    [[nodiscard]] static cm::ConnectionRequest request(cm::Listener& listener) {
        standin::request_connection(listener.native());
        return listener.next(long_enough);
    }

    Basics basics_;
};

} // namespace rdmabuf::testing
