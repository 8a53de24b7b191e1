// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include <rdmabuf/cm.hpp>

#include "fake_rdmacm/fake_rdmacm.hpp"
#include "softverbs_fixture.hpp"

namespace rdmabuf::testing {

/// For tests on softverbs and a fake of librdmacm, where every address leads to the one device.
/// Afterwards nothing is left of what librdmacm gave out, either.
class ConnectionTest : public SoftverbsTest {
  public:
    ~ConnectionTest() override {
        EXPECT_EQ(fake_rdmacm::live(), 0U) << "ids or event channels were leaked";
        EXPECT_THAT(fake_rdmacm::violations(), ::testing::IsEmpty());
        EXPECT_EQ(fake_rdmacm::unacknowledged_events(), 0U);
        EXPECT_TRUE(fake_rdmacm::all_failed()) << "a planned failure did not happen";
    }
    ConnectionTest(const ConnectionTest&) = delete;
    ConnectionTest& operator=(const ConnectionTest&) = delete;

  protected:
    static constexpr auto long_enough = std::chrono::seconds(20);

    ConnectionTest() { begin_anew(); }

    /// Every step succeeds from now on.
    void begin_anew() const {
        fake_rdmacm::reset(basics_.context.native());
        fake_rdmacm::after_each_destruction([](const char* kind) { record_destroyed(kind); });
    }
    /// Objects of both libraries.
    [[nodiscard]] static std::size_t live() {
        return softverbs_live(SOFTVERBS_KINDS) + fake_rdmacm::live();
    }
    /// Of both libraries.
    [[nodiscard]] static unsigned unacknowledged_events() {
        return softverbs_unacknowledged_events() + fake_rdmacm::unacknowledged_events();
    }

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
        fake_rdmacm::request_connection(listener.native());
        return listener.next(long_enough);
    }

    Basics basics_;
};

} // namespace rdmabuf::testing
