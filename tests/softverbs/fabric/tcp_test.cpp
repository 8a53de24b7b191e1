// SPDX-License-Identifier: BSD-3-Clause
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/tcp_frame.hpp"
#include "fabric/tcp_handshake.hpp"
#include "support.hpp"

namespace softverbs::fabric::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Returns the first of a range of ports. It depends on the PID, so that tests that run at the same
/// time have different ranges.
std::uint16_t some_first_port() {
    return static_cast<std::uint16_t>(2048 + ::getpid() % 14 * 2048);
}

/// A simulated host on the loopback interface, with its own address and its own rendezvous
/// directory.
class Host {
  public:
    explicit Host(const std::string& address, const std::string& secret = std::string(16, 's'))
        : address_(*parse_host_address(address)) {
        options_ = directory_.options();
        options_.network.addresses = {address_};
        options_.network.first_port = some_first_port();
        for (const char letter : secret) {
            options_.network.secret.push_back(static_cast<std::byte>(letter));
        }
    }
    [[nodiscard]] const NodeOptions& options() const { return options_; }
    [[nodiscard]] const HostAddress& address() const { return address_; }

  private:
    NodeDirectory directory_;
    HostAddress address_;
    NodeOptions options_;
};

/// Calls turn() of a peer. Overload for until().
void turn(Peer& peer) {
    peer.turn();
}

class TcpTest : public ::testing::Test {
  protected:
    [[nodiscard]] Connection* connect() {
        return a.node->connect(Route{one.address(), other.address()}, b.node->slot());
    }
    [[nodiscard]] bool until(const std::function<bool()>& done) {
        return turn_until({&a, &b}, done);
    }
    /// Returns a TCP connection from the address of host one to the port of b.
    [[nodiscard]] UniqueFd raw_connection() const { return raw_connection(one.address()); }
    [[nodiscard]] UniqueFd raw_connection(const HostAddress& source) const {
        UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const SocketAddress from(source, 0);
        const SocketAddress to(other.address(),
                               static_cast<std::uint16_t>(some_first_port() + b.node->slot()));
        EXPECT_EQ(::bind(socket.get(), from.get(), from.length), 0);
        EXPECT_EQ(::connect(socket.get(), to.get(), to.length), 0);
        return socket;
    }
    /// Returns whether b closes the connection.
    [[nodiscard]] bool is_closed_by_peer(const UniqueFd& socket) {
        return until([&] {
            std::array<std::byte, 256> bytes{};
            ssize_t got = 0;
            while ((got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
            }
            return got == 0 || errno == ECONNRESET;
        });
    }

    Host one{"127.0.0.1"};
    Host other{"127.0.0.2"};
    Peer a{one.options()};
    Peer b{other.options()};
};

TEST_F(TcpTest, CarriesRecordsBothWaysInOrder) {
    Connection* const there = connect();
    ASSERT_NE(there, nullptr);
    EXPECT_TRUE(there->between_hosts());
    // Records can be sent before the connection is established.
    ASSERT_EQ(send(*there, Lane::requests, "one"), Sent::sent);
    ASSERT_EQ(send(*there, Lane::requests, "two"), Sent::sent);
    ASSERT_TRUE(until([&] { return b.seen.requests.size() == 2; }));
    EXPECT_THAT(b.seen.requests, ElementsAre("one", "two"));
    EXPECT_EQ(b.seen.from->slot(), a.node->slot());
    EXPECT_EQ(b.seen.from->route(), (Route{other.address(), one.address()}));
    ASSERT_EQ(send(*b.seen.from, Lane::responses, "three"), Sent::sent);
    ASSERT_TRUE(until([&] { return !a.seen.responses.empty() && there->taken() == 2; }));
    EXPECT_THAT(a.seen.responses, ElementsAre("three"));
    EXPECT_EQ(there->sent(), 2U);
    EXPECT_TRUE(there->delivers());
}

TEST_F(TcpTest, ReturnsTheConnectionThereIs) {
    Connection* const there = connect();
    ASSERT_NE(there, nullptr);
    EXPECT_EQ(connect(), there);
    ASSERT_EQ(send(*there, Lane::requests, "one"), Sent::sent);
    ASSERT_TRUE(until([&] { return b.seen.from != nullptr; }));
    EXPECT_EQ(b.node->connect(Route{other.address(), one.address()}, a.node->slot()), b.seen.from);
}

TEST_F(TcpTest, CarriesRecordsOfEveryLength) {
    Connection* const there = connect();
    ASSERT_NE(there, nullptr);
    std::vector<std::string> sent;
    for (std::size_t length = 0; length <= there->max_record();
         length = length < 40 ? length + 1 : length * 2 + 1) {
        sent.emplace_back(length, static_cast<char>('a' + length % 26));
        ASSERT_EQ(send(*there, Lane::requests, sent.back()), Sent::sent);
    }
    ASSERT_TRUE(until([&] { return b.seen.requests.size() == sent.size(); }));
    EXPECT_EQ(b.seen.requests, sent);
}

TEST_F(TcpTest, AWindowFillsAndOpensAgain) {
    Connection* const there = connect();
    ASSERT_NE(there, nullptr);
    const std::string record(16384, 'r');
    std::size_t count = 0;
    while (send(*there, Lane::requests, record) == Sent::sent) {
        ++count;
    }
    EXPECT_EQ(count, window_bytes / frame_bytes(record.size()));
    EXPECT_FALSE(there->has_room(Lane::requests, record.size()));
    EXPECT_TRUE(there->has_room(Lane::responses, record.size()));
    ASSERT_TRUE(until([&] { return a.seen.rooms != 0; }));
    ASSERT_TRUE(until([&] { return b.seen.requests.size() == count; }));
    EXPECT_EQ(send(*there, Lane::requests, record), Sent::sent);
}

TEST_F(TcpTest, ResponsesPassRequestsThatTheHandlerRefuses) {
    Connection* const there = connect();
    ASSERT_NE(there, nullptr);
    b.seen.refusals = 1'000'000;
    ASSERT_EQ(send(*there, Lane::requests, "one"), Sent::sent);
    ASSERT_EQ(send(*there, Lane::requests, "two"), Sent::sent);
    ASSERT_EQ(send(*there, Lane::responses, "three"), Sent::sent);
    ASSERT_TRUE(until([&] { return !b.seen.responses.empty(); }));
    EXPECT_THAT(b.seen.requests, IsEmpty());
    EXPECT_EQ(there->taken(), 0U);
    b.seen.refusals = 0;
    ASSERT_TRUE(until([&] { return b.seen.requests.size() == 2; }));
    EXPECT_THAT(b.seen.requests, ElementsAre("one", "two"));
    ASSERT_TRUE(until([&] { return there->taken() == 2; }));
}

TEST_F(TcpTest, NoticesThatTheOtherProcessHasEnded) {
    Connection* const there = connect();
    ASSERT_NE(there, nullptr);
    ASSERT_EQ(send(*there, Lane::requests, "one"), Sent::sent);
    ASSERT_TRUE(until([&] { return b.seen.from != nullptr; }));
    ASSERT_EQ(send(*b.seen.from, Lane::responses, "last"), Sent::sent);
    b.node.reset();
    ASSERT_TRUE(turn_until({&a}, [&] { return a.seen.gone == 1; }));
    EXPECT_THAT(a.seen.responses, ElementsAre("last"));
}

TEST_F(TcpTest, AProcessThatDoesNotListenIsGone) {
    const Route route{one.address(), other.address()};
    Connection* const there = a.node->connect(route, (b.node->slot() + 1) % 16);
    ASSERT_NE(there, nullptr);
    EXPECT_FALSE(there->delivers());
    ASSERT_TRUE(until([&] { return a.seen.gone == 1; }));
}

TEST_F(TcpTest, RefusesAPeerWithAnotherSecret) {
    const Host stranger("127.0.0.3", "another secret of 26 bytes");
    Peer c(stranger.options());
    ::testing::internal::CaptureStderr();
    Connection* const there =
        c.node->connect(Route{stranger.address(), other.address()}, b.node->slot());
    ASSERT_NE(there, nullptr);
    ASSERT_EQ(send(*there, Lane::requests, "one"), Sent::sent);
    ASSERT_TRUE(turn_until({&b, &c}, [&] { return c.seen.gone == 1; }));
    EXPECT_THAT(b.seen.requests, IsEmpty());
    const std::string output = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(output, HasSubstr("softverbs: 127.0.0.3: the process at the other end does not "
                                  "know the secret"));
    EXPECT_THAT(output, HasSubstr("softverbs: 127.0.0.2: the other host refused this process"));
}

TEST_F(TcpTest, ClosesAConnectionThatIsNotOfSoftverbs) {
    const UniqueFd socket = raw_connection();
    const std::string request(TcpHandshake::opening_bytes, 'G');
    ASSERT_EQ(::send(socket.get(), request.data(), request.size(), 0),
              static_cast<ssize_t>(request.size()));
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(is_closed_by_peer(socket));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("is not softverbs"));
}

TEST_F(TcpTest, ClosesAConnectionOfAnotherVersionAndSaysItsOwn) {
    const UniqueFd socket = raw_connection();
    std::array<char, TcpHandshake::opening_bytes> hello{"softverb\x03\0\x01"};
    ASSERT_EQ(::send(socket.get(), hello.data(), hello.size(), 0),
              static_cast<ssize_t>(hello.size()));
    std::array<char, TcpHandshake::opening_bytes> challenge{};
    std::size_t got = 0;
    ::testing::internal::CaptureStderr();
    ASSERT_TRUE(until([&] {
        const ssize_t more =
            ::recv(socket.get(), challenge.data() + got, challenge.size() - got, MSG_DONTWAIT);
        got += more > 0 ? static_cast<std::size_t>(more) : 0;
        return got == challenge.size();
    }));
    EXPECT_EQ(std::string(challenge.data(), 10), std::string("softverb\x02\0", 10));
    EXPECT_TRUE(is_closed_by_peer(socket));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("with version 3 of the network protocol, and this one has 2"));
}

TEST_F(TcpTest, ClosesAConnectionThatSaysHalfAHello) {
    const UniqueFd socket = raw_connection();
    ASSERT_EQ(::send(socket.get(), "softverb", 8, 0), 8);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(is_closed_by_peer(socket));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the handshake took too long"));
}

TEST_F(TcpTest, ManySilentPeersDoNotKeepAProvenOneOut) {
    constexpr int connections = 200;
    std::vector<UniqueFd> silent;
    silent.reserve(connections);
    for (int i = 0; i < connections; ++i) {
        silent.push_back(raw_connection());
    }
    Connection* const there = connect();
    ASSERT_NE(there, nullptr);
    ASSERT_EQ(send(*there, Lane::requests, "one"), Sent::sent);
    ASSERT_TRUE(until([&] { return b.seen.requests.size() == 1; }));
    // These are the descriptors of b and of this test. b keeps at most 64 connections without a
    // proof.
    EXPECT_LE(open_descriptors(), 200U + 64U + 40U);
}

/// A peer that executes the handshake correctly. Afterwards, a test can send any bytes.
class ProvenPeer {
  public:
    /// @param source  the address that the peer claims
    ProvenPeer(const HostAddress& source, const Host& target, const Peer& node, UniqueFd socket,
               std::uint32_t slot = 3)
        : socket_(std::move(socket)),
          handshake_(TcpHandshake::Side::connector, target.options().network.secret,
                     {source, target.address()}, slot, node.node->slot()) {}
    [[nodiscard]] TcpHandshake::Progress advance() { return handshake_.advance(socket_.get()); }
    [[nodiscard]] const UniqueFd& socket() const { return socket_; }
    void send(std::span<const std::byte> bytes) const {
        ASSERT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), 0),
                  static_cast<ssize_t>(bytes.size()));
    }

  private:
    UniqueFd socket_;
    TcpHandshake handshake_;
};

TEST_F(TcpTest, ManySilentPeersOfAHostDoNotEndTheHandshakeOfAnother) {
    const HostAddress third = *parse_host_address("127.0.0.3");
    ProvenPeer slow(third, other, b, raw_connection(third));
    ASSERT_EQ(slow.advance(), TcpHandshake::Progress::waiting);
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 200; ++i) {
        silent.push_back(raw_connection());
        b.turn();
    }
    EXPECT_TRUE(is_closed_by_peer(silent.front()));
    TcpHandshake::Progress progress = TcpHandshake::Progress::waiting;
    EXPECT_TRUE(
        until([&] { return (progress = slow.advance()) != TcpHandshake::Progress::waiting; }));
    EXPECT_EQ(progress, TcpHandshake::Progress::done);
}

TEST_F(TcpTest, RefusesAPeerThatClaimsTheAddressOfAnother) {
    ProvenPeer peer(*parse_host_address("127.0.0.9"), other, b, raw_connection());
    ::testing::internal::CaptureStderr();
    ASSERT_TRUE(until([&] { return peer.advance() == TcpHandshake::Progress::failed; }));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("softverbs: 127.0.0.1: the process at the other end claims the "
                          "address 127.0.0.9"));
}

TEST_F(TcpTest, RefusesAPeerWithASlotThatDoesNotExist) {
    ProvenPeer peer(one.address(), other, b, raw_connection(), max_slots);
    ::testing::internal::CaptureStderr();
    ASSERT_TRUE(until([&] { return peer.advance() == TcpHandshake::Progress::done; }));
    EXPECT_TRUE(is_closed_by_peer(peer.socket()));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("has an invalid slot"));
}

TEST_F(TcpTest, RefusesAConnectionAtTheLimitOfDescriptors) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const SocketAddress to(other.address(),
                           static_cast<std::uint16_t>(some_first_port() + b.node->slot()));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit few{static_cast<rlim_t>(socket.get()) + 1, before.rlim_max};
    ::testing::internal::CaptureStderr();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    static_cast<void>(::connect(socket.get(), to.get(), to.length));
    const bool closed = is_closed_by_peer(socket);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(closed);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("raise ulimit -n"));
}

TEST_F(TcpTest, ClosesAConnectionWithAFrameThatIsNone) {
    FrameHeader too_long;
    too_long.kind = FrameKind::request;
    too_long.length = longest_frame_record + 1;
    FrameHeader consumed_what_was_not_sent;
    consumed_what_was_not_sent.requests_consumed = 1;
    FrameHeader unknown_kind;
    unknown_kind.kind = static_cast<FrameKind>(3);
    FrameHeader credit_with_a_record;
    credit_with_a_record.length = 8;
    for (const FrameHeader& header :
         {too_long, consumed_what_was_not_sent, unknown_kind, credit_with_a_record}) {
        const unsigned gone_before = b.seen.gone;
        ProvenPeer peer(one.address(), other, b, raw_connection());
        ASSERT_TRUE(until([&] { return peer.advance() == TcpHandshake::Progress::done; }));
        peer.send(std::as_bytes(std::span(&header, 1)));
        EXPECT_TRUE(is_closed_by_peer(peer.socket()));
        EXPECT_EQ(b.seen.gone, gone_before + 1);
    }
    EXPECT_THAT(b.seen.requests, IsEmpty());
}

TEST_F(TcpTest, DropsARecordOfWhichOnlyHalfComes) {
    ProvenPeer peer(one.address(), other, b, raw_connection());
    ASSERT_TRUE(until([&] { return peer.advance() == TcpHandshake::Progress::done; }));
    FrameHeader header;
    header.kind = FrameKind::request;
    header.length = 4096;
    peer.send(std::as_bytes(std::span(&header, 1)));
    peer.send(std::vector<std::byte>(2000));
    for (int i = 0; i < 20; ++i) {
        turn(b);
    }
    ::shutdown(peer.socket().get(), SHUT_WR);
    ASSERT_TRUE(until([&] { return b.seen.gone == 1; }));
    EXPECT_THAT(b.seen.requests, IsEmpty());
}

TEST(TcpNode, TakesAnotherSlotWhereAProgramHasThePort) {
    Host host("127.0.0.4");
    NodeOptions options = host.options();
    options.slots = 2;
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress taken(host.address(), options.network.first_port);
    ASSERT_EQ(::bind(socket.get(), taken.get(), taken.length), 0);
    ASSERT_EQ(::listen(socket.get(), 1), 0);
    const auto node = std::make_unique<Node>(options);
    EXPECT_EQ(node->slot(), 1U);
    EXPECT_THROW(static_cast<void>(std::make_unique<Node>(options)), std::system_error);
}

TEST(TcpNode, WithoutANetworkHasNoWayToAnotherHost) {
    const NodeDirectory directory;
    const auto node = std::make_unique<Node>(directory.options());
    const Route route{*parse_host_address("127.0.0.1"), *parse_host_address("127.0.0.2")};
    EXPECT_EQ(node->connect(route, 0), nullptr);
    EXPECT_EQ(errno, ENETUNREACH);
}

TEST(HostAddresses, AreParsedAndWritten) {
    for (const char* const text : {"192.0.2.1", "2001:db8::1"}) {
        const auto address = parse_host_address(text);
        ASSERT_TRUE(address) << text;
        EXPECT_EQ(to_string(*address), text);
        EXPECT_TRUE(is_global(*address));
        const SocketAddress name(*address, 1);
        EXPECT_EQ(host_of(*name.get()), address);
    }
    for (const char* const text :
         {"127.0.0.1", "169.254.1.1", "0.0.0.0", "224.0.0.1", "::1", "::", "fe80::1", "ff02::1"}) {
        EXPECT_FALSE(is_global(*parse_host_address(text))) << text;
    }
    EXPECT_FALSE(parse_host_address("host.example"));
    EXPECT_FALSE(parse_host_address(""));
}

} // namespace
} // namespace softverbs::fabric::testing
