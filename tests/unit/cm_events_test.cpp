// SPDX-License-Identifier: BSD-3-Clause
// What each event that ends a step of a connection comes to: its errno, its words, and nothing
// left.
#include <cerrno>
#include <chrono>
#include <ostream>
#include <string>
#include <vector>

#include "cm_fixture.hpp"

namespace rdmabuf {
namespace {

using cm::Connection;
using cm::ConnectionRequest;
using cm::Listener;
using fake_rdmacm::CmEvent;
using testing::error_of;
using testing::fails_with;
using namespace std::chrono_literals;

constexpr auto short_timeout = 100ms;

class CmEvents : public testing::ConnectionTest {
  protected:
    /// Takes @p step up to the one of @p function.
    void take_step(const std::string& function, std::chrono::milliseconds timeout) {
        if (function == "rdma_accept") {
            Listener listener("192.0.2.9", 4711);
            ConnectionRequest incoming = request(listener);
            static_cast<void>(std::move(incoming).accept(prepare(), {}, timeout));
        } else if (function == "rdma_connect") {
            static_cast<void>(route().connect(prepare(), {}, timeout));
        } else if (function == "rdma_disconnect") {
            Connection connection = connected();
            connection.disconnect(timeout);
        } else {
            static_cast<void>(route(timeout));
        }
    }

    std::optional<Error> outcome(const std::string& function,
                                 std::chrono::milliseconds timeout = long_enough) {
        const std::size_t before = live();
        const auto descriptors = testing::open_descriptors();
        auto error = error_of([&] { take_step(function, timeout); });
        EXPECT_EQ(live(), before);
        EXPECT_EQ(testing::open_descriptors(), descriptors);
        EXPECT_EQ(unacknowledged_events(), 0U);
        return error;
    }
};

struct Case {
    const char* function;
    CmEvent event;
    int error;
    const char* words;
};
std::ostream& operator<<(std::ostream& out, const Case& each) {
    return out << each.function << ": " << rdma_event_str(each.event.type) << ", status "
               << each.event.status;
}

const std::vector<Case> cases{
    {"rdma_resolve_addr",
     {RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT},
     ETIMEDOUT,
     "192.0.2.9:4711 did not answer"},
    {"rdma_resolve_addr",
     {RDMA_CM_EVENT_ADDR_ERROR, -ENODEV},
     ENODEV,
     "no RDMA device can use the address 192.0.2.9:4711"},
    {"rdma_resolve_addr",
     {RDMA_CM_EVENT_ADDR_ERROR, 0},
     EHOSTUNREACH,
     "there is no route to 192.0.2.9:4711"},
    {"rdma_resolve_addr", {RDMA_CM_EVENT_ADDR_RESOLVED, 7}, EIO, "192.0.2.9:4711"},
    {"rdma_resolve_addr", {RDMA_CM_EVENT_DEVICE_REMOVAL}, ENODEV, "the RDMA device was removed"},
    {"rdma_resolve_addr",
     {RDMA_CM_EVENT_MULTICAST_JOIN},
     EPROTO,
     "unexpected RDMA_CM_EVENT_MULTICAST_JOIN from 192.0.2.9:4711"},
    {"rdma_resolve_route",
     {RDMA_CM_EVENT_ROUTE_ERROR, -ENETUNREACH},
     ENETUNREACH,
     "there is no route to 192.0.2.9:4711"},
    {"rdma_resolve_route", {RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT}, ETIMEDOUT, "did not answer"},
    {"rdma_resolve_route", {RDMA_CM_EVENT_DEVICE_REMOVAL}, ENODEV, "the RDMA device was removed"},
    {"rdma_connect",
     {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT},
     ETIMEDOUT,
     "192.0.2.9:4711 did not answer"},
    {"rdma_connect",
     {RDMA_CM_EVENT_UNREACHABLE, 0},
     EHOSTUNREACH,
     "there is no route to 192.0.2.9:4711"},
    {"rdma_connect",
     {RDMA_CM_EVENT_REJECTED, 28, std::string("not now\0\0\0", 10)},
     ECONNREFUSED,
     "192.0.2.9:4711 refused: the program at the peer did not accept the connection: message \"not "
     "now\""},
    {"rdma_connect",
     {RDMA_CM_EVENT_REJECTED, 8},
     ECONNREFUSED,
     "192.0.2.9:4711 refused: no program listens at this address"},
    {"rdma_connect", {RDMA_CM_EVENT_REJECTED, 99}, ECONNREFUSED, "refused: reject reason 99"},
    {"rdma_connect",
     {RDMA_CM_EVENT_REJECTED, -ECONNREFUSED},
     ECONNREFUSED,
     "refused: Connection refused (ECONNREFUSED)"},
    {"rdma_connect", {RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO}, EPROTO, "192.0.2.9:4711"},
    {"rdma_connect", {RDMA_CM_EVENT_CONNECT_ERROR, 1}, ECONNABORTED, "192.0.2.9:4711"},
    {"rdma_connect", {RDMA_CM_EVENT_DEVICE_REMOVAL}, ENODEV, "the RDMA device was removed"},
    {"rdma_connect",
     {RDMA_CM_EVENT_DISCONNECTED},
     ECONNRESET,
     "192.0.2.9:4711 disconnected before the connection was established"},
    // librdmacm failed at what it does for this event, and says so with errno.
    {"rdma_connect",
     {.type = RDMA_CM_EVENT_CONNECT_RESPONSE, .status = -1, .left_errno = ENOMEM},
     ENOMEM,
     "192.0.2.9:4711"},
    {"rdma_accept",
     {RDMA_CM_EVENT_REJECTED, 28},
     ECONNRESET,
     "192.0.2.9:4711 withdrew its connection request before it was accepted"},
    {"rdma_accept", {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT}, ETIMEDOUT, "did not answer"},
    {"rdma_accept", {RDMA_CM_EVENT_CONNECT_ERROR, 0}, ECONNABORTED, "192.0.2.9:4711"},
    {"rdma_accept", {RDMA_CM_EVENT_DEVICE_REMOVAL}, ENODEV, "the RDMA device was removed"},
    {"rdma_accept",
     {RDMA_CM_EVENT_DISCONNECTED},
     ECONNRESET,
     "disconnected before the connection was established"},
    {"rdma_disconnect",
     {RDMA_CM_EVENT_MULTICAST_ERROR},
     EPROTO,
     "unexpected RDMA_CM_EVENT_MULTICAST_ERROR"},
};

TEST_F(CmEvents, ThatEndAStepAreItsError) {
    for (const Case& each : cases) {
        SCOPED_TRACE(::testing::PrintToString(each));
        begin_anew();
        fake_rdmacm::answer(each.function, each.event);
        EXPECT_THAT(outcome(each.function), fails_with(each.function, each.error, each.words));
    }
}

TEST_F(CmEvents, ThatDoNotComeAreATimeout) {
    for (const char* const function : {"rdma_resolve_addr", "rdma_resolve_route", "rdma_connect",
                                       "rdma_accept", "rdma_disconnect"}) {
        SCOPED_TRACE(function);
        begin_anew();
        fake_rdmacm::answer_nothing(function);
        EXPECT_THAT(
            outcome(function, short_timeout),
            fails_with(function, ETIMEDOUT, "192.0.2.9:4711 did not answer; the time limit was"));
    }
    Listener listener("192.0.2.9", 4711);
    EXPECT_THAT(error_of([&] { static_cast<void>(listener.next(short_timeout)); }),
                fails_with("rdma_get_cm_event", ETIMEDOUT,
                           "no peer connected to 192.0.2.9:4711 within 100 ms"));
}

TEST_F(CmEvents, OfOtherConnectionsAreNoError) {
    cm::Route way = route();
    fake_rdmacm::raise_cm_event(way.native(), {RDMA_CM_EVENT_ADDR_CHANGE});
    fake_rdmacm::raise_cm_event(way.native(), {RDMA_CM_EVENT_TIMEWAIT_EXIT});
    Connection connection = std::move(way).connect(prepare(), {}, long_enough);
    EXPECT_EQ(connection.queue_pair().state(), IBV_QPS_RTS);
}

TEST_F(CmEvents, ThatTakeTheDeviceAwayEndAListenerAndAConnection) {
    Listener listener("192.0.2.9", 4711);
    fake_rdmacm::raise_cm_event(listener.native(), {RDMA_CM_EVENT_DEVICE_REMOVAL});
    EXPECT_THAT(error_of([&] { static_cast<void>(listener.next(long_enough)); }),
                fails_with("rdma_get_cm_event", ENODEV, "the RDMA device was removed"));

    Connection connection = connected();
    EXPECT_FALSE(connection.disconnected());
    fake_rdmacm::raise_cm_event(connection.native(), {RDMA_CM_EVENT_DEVICE_REMOVAL});
    EXPECT_TRUE(connection.disconnected());

    Connection other = connected();
    fake_rdmacm::answer("rdma_disconnect", {RDMA_CM_EVENT_DEVICE_REMOVAL});
    other.disconnect(long_enough);
    EXPECT_TRUE(other.disconnected());
}

TEST_F(CmEvents, ThatEndAConnectionFlushItsQueuePair) {
    Connection connection = connected();
    fake_rdmacm::raise_cm_event(connection.native(), {RDMA_CM_EVENT_DISCONNECTED});
    EXPECT_TRUE(connection.disconnected());
    EXPECT_EQ(connection.queue_pair().state(), IBV_QPS_ERR);

    Connection silent = connected();
    fake_rdmacm::answer_nothing("rdma_disconnect");
    EXPECT_THAT(error_of([&] { silent.disconnect(short_timeout); }),
                fails_with("rdma_disconnect", ETIMEDOUT, ""));
    EXPECT_EQ(silent.queue_pair().state(), IBV_QPS_ERR);
}

TEST_F(CmEvents, ThatNobodyHasTakenGoWithTheirId) {
    Listener listener("192.0.2.9", 4711);
    ConnectionRequest incoming = request(listener);
    fake_rdmacm::raise_cm_event(incoming.native(), {RDMA_CM_EVENT_DISCONNECTED});
    // Not taken, so not there yet.
    fake_rdmacm::request_connection(listener.native());
}

TEST_F(CmEvents, RequestThatWasWithdrawnIsToldFromABadQueuePair) {
    Listener listener("192.0.2.9", 4711);
    ConnectionRequest withdrawn = request(listener);
    PreparedQueuePair prepared = prepare();
    // The kernel has no path to it any more: at the first step, and when asked again.
    fake_rdmacm::fail_next("rdma_init_qp_attr", EINVAL);
    fake_rdmacm::fail_next("rdma_init_qp_attr", EINVAL);
    EXPECT_THAT(
        error_of([&] {
            static_cast<void>(std::move(withdrawn).accept(std::move(prepared), {}, long_enough));
        }),
        fails_with("rdma_accept", ECONNRESET,
                   "withdrew its connection request before it was accepted"));

    ConnectionRequest there = request(listener);
    PreparedQueuePair bad = prepare();
    testing::fail_next("ibv_modify_qp", EINVAL);
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(std::move(there).accept(std::move(bad), {}, long_enough));
                }),
                fails_with("ibv_modify_qp", EINVAL, "to INIT"));
}

TEST_F(CmEvents, QueuePairOfAnotherContextOrTypeIsRefused) {
    const testing::Basics elsewhere;
    QueuePairOptions options{.send_cq = elsewhere.cq, .recv_cq = elsewhere.cq};
    EXPECT_THAT(
        error_of([&] {
            static_cast<void>(
                route().connect(QueuePair::prepare(elsewhere.pd, options), {}, long_enough));
        }),
        fails_with("rdma_connect", EINVAL, "the queue pair was prepared on another context"));
    options = {.send_cq = basics_.cq, .recv_cq = basics_.cq};
    options.type = QueuePairType::unreliable_connected;
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(
                        route().connect(QueuePair::prepare(basics_.pd, options), {}, long_enough));
                }),
                fails_with("rdma_connect", EINVAL, "the queue pair is UC"));
}

TEST_F(CmEvents, ConnectionGoesBeforeWhatItWasMadeFrom) {
    { const Connection connection = connected(); }
    // The list was that of the devices.
    EXPECT_THAT(testing::record().destroyed,
                ::testing::ElementsAre("list", "qp", "cm_id", "event_channel"));
}

} // namespace
} // namespace rdmabuf
