// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/cm.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/region.hpp>

#include "fails_with.hpp"
#include "support.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using cm::Connection;
using cm::ConnectionRequest;
using cm::Listener;
using cm::Route;
using rdmabuf::testing::becomes_readable;
using rdmabuf::testing::closed_on_exec;
using rdmabuf::testing::error_of;
using rdmabuf::testing::eventually;
using rdmabuf::testing::fails_with;
using rdmabuf::testing::lasts_at_least;
using rdmabuf::testing::open_descriptors;
using rdmabuf::testing::time_limit;
using namespace std::chrono_literals;

constexpr auto short_timeout = 300ms;

/// The IPv4 address of the RDMA device.
std::string own_address() {
    const Context context = Context::open_first();
    for (const GidEntry& entry : context.gid_table(1)) {
        if (entry.gid.is_ipv4_mapped()) {
            std::array<char, INET_ADDRSTRLEN> text{};
            if (::inet_ntop(AF_INET, entry.gid.bytes.data() + 12, text.data(), text.size()) !=
                nullptr) {
                return text.data();
            }
        }
    }
    throw std::runtime_error("the RDMA device has no IPv4 address");
}

/// A routable IPv6 address of the RDMA device.
std::string own_ipv6_address() {
    const Context context = Context::open_first();
    for (const GidEntry& entry : context.gid_table(1)) {
        if (!entry.gid.is_ipv4_mapped() && !entry.gid.is_link_local()) {
            return to_string(entry.gid);
        }
    }
    throw std::runtime_error("the RDMA device has no IPv6 address");
}

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

/// What comes before the zeros that pad it.
std::string text_of(std::span<const std::byte> data) {
    std::string text(reinterpret_cast<const char*>(data.data()), data.size());
    const std::size_t end = text.find('\0');
    return end == std::string::npos ? text : text.substr(0, end);
}

/// What a program makes on a context before it connects.
struct Endpoint {
    explicit Endpoint(const Context& context)
        : pd(context),
          cq(context),
          region(pd, memory.data(), memory.size(), {.access = full_access}) {}

    PreparedQueuePair prepare(std::uint8_t port) const {
        QueuePairOptions options{.send_cq = cq, .recv_cq = cq};
        options.port = port;
        return QueuePair::prepare(pd, options);
    }

    WorkCompletion wait_completion() const {
        std::array<WorkCompletion, 1> completion{};
        if (cq.wait(completion, time_limit) != 1) {
            throw std::runtime_error("no completion came");
        }
        return completion[0];
    }

    std::array<std::byte, 4096> memory{};
    ProtectionDomain pd;
    CompletionQueue cq;
    MemoryRegion region;
};

Connection connect(Route& route, const Endpoint& endpoint, std::span<const std::byte> offer = {},
                   std::chrono::milliseconds timeout = time_limit) {
    PreparedQueuePair prepared = endpoint.prepare(route.port());
    return std::move(route).connect(std::move(prepared), offer, timeout);
}

Connection accept(ConnectionRequest& request, const Endpoint& endpoint,
                  std::span<const std::byte> reply = {}) {
    PreparedQueuePair prepared = endpoint.prepare(request.port());
    EXPECT_TRUE(prepared.post_recv(endpoint.region.sge(0, 64), 7).ok());
    return std::move(request).accept(std::move(prepared), reply, time_limit);
}

/// Both ends of a connection, each with its endpoint.
struct Pair {
    std::unique_ptr<Endpoint> active;
    std::unique_ptr<Endpoint> passive;
    std::optional<Connection> connected;
    std::optional<Connection> accepted;
};

Pair make_pair(const std::string& host = own_address(), std::string_view offer = "",
               std::string_view reply = "") {
    Pair pair;
    Listener listener(host, 0);
    auto accepting = std::async(std::launch::async, [&] {
        ConnectionRequest request = listener.next(time_limit);
        pair.passive = std::make_unique<Endpoint>(request.context());
        pair.accepted = accept(request, *pair.passive, bytes_of(reply));
    });
    Route route(host, listener.port(), time_limit);
    pair.active = std::make_unique<Endpoint>(route.context());
    pair.connected = connect(route, *pair.active, bytes_of(offer));
    accepting.get();
    return pair;
}

/// Connects, and returns what came of it.
std::optional<Error> error_of_connecting(const std::string& host, std::uint16_t port,
                                         std::chrono::milliseconds timeout = time_limit) {
    return error_of([&] {
        Route route(host, port, time_limit);
        const Endpoint endpoint(route.context());
        static_cast<void>(connect(route, endpoint, {}, timeout));
    });
}

void expect_data_both_ways(Pair& pair) {
    std::memcpy(pair.active->memory.data(), "sent", 4);
    ASSERT_TRUE(pair.connected->queue_pair().post_send(pair.active->region.sge(0, 4)).ok());
    EXPECT_TRUE(succeeded(pair.active->wait_completion()));
    const WorkCompletion received = pair.passive->wait_completion();
    EXPECT_TRUE(succeeded(received)) << describe(received);
    EXPECT_EQ(received.wr_id, 7U);
    EXPECT_EQ(received.byte_len, 4U);
    EXPECT_EQ(std::memcmp(pair.passive->memory.data(), "sent", 4), 0);

    std::memcpy(pair.passive->memory.data() + 100, "written", 7);
    ASSERT_TRUE(
        pair.accepted->queue_pair()
            .post_write(pair.passive->region.sge(100, 7), pair.active->region.remote().at(200))
            .ok());
    EXPECT_TRUE(succeeded(pair.passive->wait_completion()));
    EXPECT_EQ(std::memcmp(pair.active->memory.data() + 200, "written", 7), 0);

    ASSERT_TRUE(
        pair.connected->queue_pair()
            .post_read(pair.active->region.sge(300, 7), pair.passive->region.remote().at(100))
            .ok());
    const WorkCompletion read = pair.active->wait_completion();
    EXPECT_TRUE(succeeded(read)) << describe(read);
    EXPECT_EQ(std::memcmp(pair.active->memory.data() + 300, "written", 7), 0);
}

/// Asks the device: what the queue pair really has.
ibv_qp_attr attributes_of(const QueuePair& qp) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    constexpr int mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
    EXPECT_EQ(ibv_query_qp(qp.native(), &attributes, mask, &init), 0);
    return attributes;
}

class Cm : public ::testing::Test {
  protected:
    // librdmacm keeps a device it has opened until the program ends.
    static void SetUpTestSuite() {
        const Listener listener(own_address(), 0);
        const Route route(own_address(), listener.port(), time_limit);
    }
    void SetUp() override { before_ = open_descriptors(); }
    void TearDown() override {
        EXPECT_EQ(open_descriptors(), before_) << "descriptors leaked";
        EXPECT_THAT(rdmabuf::testing::TeardownFailures::seen(), ::testing::IsEmpty());
    }

  private:
    std::set<int> before_;
    rdmabuf::testing::TeardownFailures failures_;
};

TEST_F(Cm, connects_with_private_data_both_ways_and_moves_data) {
    Pair pair = make_pair(own_address(), "the offer", "the reply");
    EXPECT_EQ(text_of(pair.accepted->private_data()), "the offer");
    EXPECT_EQ(text_of(pair.connected->private_data()), "the reply");
    EXPECT_EQ(pair.connected->queue_pair().state(), IBV_QPS_RTS);
    EXPECT_EQ(pair.accepted->queue_pair().state(), IBV_QPS_RTS);
    expect_data_both_ways(pair);
    EXPECT_FALSE(pair.connected->disconnected());
    EXPECT_FALSE(pair.accepted->disconnected());
}

TEST_F(Cm, connects_over_ipv6) {
    Pair pair = make_pair(own_ipv6_address());
    expect_data_both_ways(pair);
}

TEST_F(Cm, listens_at_every_address_when_given_none) {
    Listener listener("", 0);
    EXPECT_NE(listener.port(), 0);
    for (const std::string& host : {own_address(), own_ipv6_address()}) {
        auto connecting = std::async(std::launch::async,
                                     [&] { return error_of_connecting(host, listener.port()); });
        static_cast<void>(listener.next(time_limit));
        EXPECT_THAT(connecting.get(), fails_with(ECONNREFUSED, "did not accept")) << host;
    }
}

TEST_F(Cm, takes_the_most_private_data_there_can_be_and_refuses_more) {
    const std::string offer(56, 'o');
    const std::string reply(196, 'r');
    const Pair pair = make_pair(own_address(), offer, reply);
    EXPECT_EQ(text_of(pair.accepted->private_data()), offer);
    EXPECT_EQ(text_of(pair.connected->private_data()), reply);

    Listener listener(own_address(), 0);
    Route route(own_address(), listener.port(), time_limit);
    const Endpoint endpoint(route.context());
    const std::vector<std::byte> too_much(57);
    EXPECT_THAT(error_of([&] { static_cast<void>(connect(route, endpoint, too_much)); }),
                fails_with(EMSGSIZE,
                           "rdma_connect: Message too long (EMSGSIZE): private data can "
                           "have at most 56 bytes, not 57"));
    // The route is still there.
    auto connecting = std::async(std::launch::async, [&] {
        return error_of([&] { static_cast<void>(connect(route, endpoint)); });
    });
    ConnectionRequest request = listener.next(time_limit);
    const std::vector<std::byte> reply_too_long(197);
    EXPECT_THAT(error_of([&] { static_cast<void>(accept(request, endpoint, reply_too_long)); }),
                fails_with(EMSGSIZE, "at most 196 bytes, not 197"));
    EXPECT_THAT(error_of([&] { std::move(request).reject(std::string(149, 'x')); }),
                fails_with(EMSGSIZE, "at most 148 bytes, not 149"));
    std::move(request).reject(std::string(148, 'x'));
    EXPECT_THAT(connecting.get(), fails_with(ECONNREFUSED, "message \"xxx"));
}

TEST_F(Cm, uses_the_timeouts_that_the_queue_pair_was_prepared_with_and_the_smaller_depths) {
    Listener listener(own_address(), 0);
    std::optional<Connection> accepted;
    std::optional<Endpoint> passive;
    auto accepting = std::async(std::launch::async, [&] {
        ConnectionRequest request = listener.next(time_limit);
        passive.emplace(request.context());
        QueuePairOptions options{.send_cq = passive->cq, .recv_cq = passive->cq};
        options.max_rd_atomic = 8;
        options.max_dest_rd_atomic = 4;
        options.timeout = 17;
        accepted =
            std::move(request).accept(QueuePair::prepare(passive->pd, options), {}, time_limit);
    });
    Route route(own_address(), listener.port(), time_limit);
    const Endpoint active(route.context());
    QueuePairOptions options{.send_cq = active.cq, .recv_cq = active.cq};
    options.max_rd_atomic = 16;
    options.max_dest_rd_atomic = 2;
    options.timeout = 15;
    options.retry_count = 4;
    options.rnr_retry = 3;
    options.min_rnr_timer = 10;
    const Connection connected =
        std::move(route).connect(QueuePair::prepare(active.pd, options), {}, time_limit);
    accepting.get();

    // Powers of two, because rxe rounds up to them.
    const ibv_qp_attr ours = attributes_of(connected.queue_pair());
    EXPECT_EQ(ours.timeout, 15);
    EXPECT_EQ(ours.retry_cnt, 4);
    EXPECT_EQ(ours.rnr_retry, 3);
    EXPECT_EQ(ours.min_rnr_timer, 10);
    EXPECT_EQ(ours.max_rd_atomic, 4);
    EXPECT_EQ(ours.max_dest_rd_atomic, 2);
    const ibv_qp_attr theirs = attributes_of(accepted->queue_pair());
    EXPECT_EQ(theirs.timeout, 17);
    EXPECT_EQ(theirs.retry_cnt, 7);
    EXPECT_EQ(theirs.rnr_retry, 7);
    EXPECT_EQ(theirs.min_rnr_timer, 12);
    EXPECT_EQ(theirs.max_rd_atomic, 2);
    EXPECT_EQ(theirs.max_dest_rd_atomic, 4);
}

TEST_F(Cm, a_request_that_is_dropped_is_refused) {
    Listener listener(own_address(), 0);
    const std::string address = own_address() + ":" + std::to_string(listener.port());
    auto connecting = std::async(
        std::launch::async, [&] { return error_of_connecting(own_address(), listener.port()); });
    static_cast<void>(listener.next(time_limit));
    EXPECT_THAT(
        connecting.get(),
        fails_with(ECONNREFUSED, "rdma_connect: Connection refused (ECONNREFUSED): " + address +
                                     " refused: the program at the peer did not accept"));
}

TEST_F(Cm, a_request_that_is_rejected_is_refused_with_the_reason) {
    Listener listener(own_address(), 0);
    auto connecting = std::async(
        std::launch::async, [&] { return error_of_connecting(own_address(), listener.port()); });
    listener.next(time_limit).reject("come back\nlater");
    EXPECT_THAT(connecting.get(),
                fails_with(ECONNREFUSED,
                           "refused: the program at the peer did not "
                           "accept the connection: message \"come back\\nlater\""));
}

TEST_F(Cm, a_request_nobody_asked_for_is_refused_when_the_listener_goes) {
    std::optional<Listener> listener(std::in_place, own_address(), 0);
    const std::uint16_t port = listener->port();
    auto connecting =
        std::async(std::launch::async, [&] { return error_of_connecting(own_address(), port); });
    EXPECT_TRUE(becomes_readable(listener->native()->channel->fd));
    listener.reset();
    EXPECT_THAT(connecting.get(), fails_with(ECONNREFUSED, " refused: "));
}

TEST_F(Cm, connecting_where_nobody_listens_is_refused) {
    std::uint16_t port = 0;
    {
        const Listener listener(own_address(), 0);
        port = listener.port();
    }
    EXPECT_THAT(error_of_connecting(own_address(), port),
                fails_with(ECONNREFUSED, own_address() + ":" + std::to_string(port) +
                                             " refused: no program listens at this address"));
}

TEST_F(Cm, connecting_to_a_listener_that_does_not_answer_ends_in_time_and_withdraws) {
    Listener listener(own_address(), 0);
    std::optional<Error> error;
    EXPECT_TRUE(lasts_at_least(short_timeout, [&] {
        error = error_of_connecting(own_address(), listener.port(), short_timeout);
    }));
    EXPECT_THAT(error,
                fails_with(ETIMEDOUT, "rdma_connect: Connection timed out (ETIMEDOUT): " +
                                          own_address() + ":" + std::to_string(listener.port()) +
                                          " did not answer; the time limit was 300 ms"));

    ConnectionRequest request = listener.next(time_limit);
    const Endpoint endpoint(request.context());
    EXPECT_THAT(error_of([&] { static_cast<void>(accept(request, endpoint)); }),
                fails_with(ECONNRESET, "withdrew its connection request before it was accepted"));
}

TEST_F(Cm, connecting_to_a_machine_that_is_not_there_ends_in_time) {
    // The interface answers for every neighbour, but nothing comes back from this one.
    EXPECT_THAT(error_of_connecting("192.0.2.77", 4711, short_timeout),
                fails_with(ETIMEDOUT, "192.0.2.77:4711 did not answer"));
}

TEST_F(Cm, a_network_without_a_route_is_unreachable) {
    EXPECT_THAT(error_of([] { const Route route("203.0.113.1", 1, time_limit); }),
                fails_with(ENETUNREACH,
                           "rdma_resolve_addr: Network is unreachable (ENETUNREACH): "
                           "there is no route to 203.0.113.1:1"));
}

TEST_F(Cm, an_address_that_no_rdma_device_leads_to_is_named) {
    EXPECT_THAT(error_of([] { const Route route("127.0.0.1", 1, time_limit); }),
                fails_with(ENODEV, "no RDMA device can use the address 127.0.0.1:1"));
}

TEST_F(Cm, listening_where_one_cannot_is_explained) {
    EXPECT_THAT(error_of([] { const Listener listener("203.0.113.1", 0); }),
                fails_with(EADDRNOTAVAIL, "203.0.113.1:0 is not an address of this machine"));
    const Listener listener(own_address(), 0);
    EXPECT_THAT(error_of([&] { const Listener second(own_address(), listener.port()); }),
                fails_with(EADDRINUSE, "a listener at " + own_address() + ":" +
                                           std::to_string(listener.port()) + " already exists"));
}

TEST_F(Cm, disconnecting_is_seen_by_the_peer_and_flushes_both_queue_pairs) {
    Pair pair = make_pair();
    auto waiting = std::async(std::launch::async, [&] {
        return error_of([&] { pair.connected->disconnect(time_limit); });
    });
    EXPECT_TRUE(eventually([&] { return pair.accepted->disconnected(); }));
    EXPECT_EQ(waiting.get(), std::nullopt);
    EXPECT_TRUE(pair.connected->disconnected());
    EXPECT_EQ(pair.connected->queue_pair().state(), IBV_QPS_ERR);
    EXPECT_EQ(pair.accepted->queue_pair().state(), IBV_QPS_ERR);
    EXPECT_EQ(pair.passive->wait_completion().status, IBV_WC_WR_FLUSH_ERR);
    // Once more does nothing.
    pair.connected->disconnect(0ms);
    pair.accepted->disconnect(0ms);
}

TEST_F(Cm, both_sides_may_disconnect_at_once) {
    Pair pair = make_pair();
    auto other = std::async(std::launch::async, [&] {
        return error_of([&] { pair.accepted->disconnect(time_limit); });
    });
    pair.connected->disconnect(time_limit);
    EXPECT_EQ(other.get(), std::nullopt);
}

TEST_F(Cm, destroying_a_connection_is_seen_by_the_peer) {
    for (const bool active_first : {true, false}) {
        Pair pair = make_pair();
        auto& first = active_first ? pair.connected : pair.accepted;
        auto& second = active_first ? pair.accepted : pair.connected;
        first.reset();
        EXPECT_TRUE(eventually([&] { return second->disconnected(); }));
        EXPECT_EQ(second->queue_pair().state(), IBV_QPS_ERR);
    }
}

TEST_F(Cm, the_end_of_the_peers_process_is_seen) {
    Listener listener(own_address(), 0);
    const std::string port = std::to_string(listener.port());
    const pid_t child = ::fork();
    if (child == 0) {
        // A fresh program: a fork does not inherit RDMA objects.
        ::execl("/proc/self/exe", "cm_test", "--connect-and-wait", own_address().c_str(),
                port.c_str(), nullptr);
        ::_exit(127);
    }
    ASSERT_GT(child, 0);
    ConnectionRequest request = listener.next(time_limit);
    const Endpoint endpoint(request.context());
    Connection connection = accept(request, endpoint);
    EXPECT_FALSE(connection.disconnected());
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    EXPECT_TRUE(eventually([&] { return connection.disconnected(); }));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(Cm, a_connection_assigned_over_is_disconnected) {
    Pair first = make_pair();
    Pair second = make_pair();
    first.connected = std::move(second.connected);
    EXPECT_TRUE(eventually([&] { return first.accepted->disconnected(); }));
    EXPECT_FALSE(second.accepted->disconnected());
    EXPECT_EQ(first.connected->queue_pair().state(), IBV_QPS_RTS);
}

TEST_F(Cm, many_connections_of_one_listener_are_told_apart) {
    constexpr int count = 4;
    Listener listener(own_address(), 0);
    auto connecting = std::async(std::launch::async, [&] {
        std::vector<std::pair<std::unique_ptr<Endpoint>, Connection>> connections;
        for (int i = 0; i < count; ++i) {
            Route route(own_address(), listener.port(), time_limit);
            auto endpoint = std::make_unique<Endpoint>(route.context());
            Connection connection = connect(route, *endpoint, bytes_of(std::to_string(i)));
            connections.emplace_back(std::move(endpoint), std::move(connection));
        }
        return connections;
    });
    std::vector<std::pair<std::unique_ptr<Endpoint>, Connection>> accepted;
    for (int i = 0; i < count; ++i) {
        ConnectionRequest request = listener.next(time_limit);
        auto endpoint = std::make_unique<Endpoint>(request.context());
        Connection connection = accept(request, *endpoint);
        accepted.emplace_back(std::move(endpoint), std::move(connection));
        EXPECT_EQ(text_of(accepted.back().second.private_data()), std::to_string(i));
    }
    auto connected = connecting.get();
    connected.erase(connected.begin() + 1);
    EXPECT_TRUE(eventually([&] {
        EXPECT_FALSE(accepted[0].second.disconnected()) << "took another one's event";
        return accepted[1].second.disconnected();
    }));
    EXPECT_FALSE(accepted[2].second.disconnected());
}

TEST_F(Cm, its_descriptors_are_not_inherited_by_other_programs) {
    const std::set<int> before = open_descriptors();
    const Pair pair = make_pair();
    std::size_t channels = 0;
    for (const int fd : open_descriptors()) {
        if (!before.contains(fd)) {
            EXPECT_TRUE(closed_on_exec(fd)) << "descriptor " << fd;
            ++channels;
        }
    }
    EXPECT_EQ(channels, 2U);
}

/// The peer of the_end_of_the_peers_process_is_seen.
void connect_and_wait(const std::string& host, const std::string& port) {
    Route route(host, static_cast<std::uint16_t>(std::stoi(port)), time_limit);
    const Endpoint endpoint(route.context());
    const Connection connection = connect(route, endpoint);
    ::pause();
}

} // namespace
} // namespace rdmabuf

int main(int argc, char** argv) {
    if (argc == 4 && std::string_view(argv[1]) == "--connect-and-wait") {
        rdmabuf::connect_and_wait(argv[2], argv[3]);
        return 0;
    }
    ::testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
}
