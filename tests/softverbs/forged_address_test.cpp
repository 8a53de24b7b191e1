// SPDX-License-Identifier: BSD-3-Clause
// A host that knows the secret and claims the address of another host.
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cm/exchange.hpp"
#include "cm_fixture.hpp"
#include "engine/packet.hpp"
#include "fabric/network_settings.hpp"
#include "fabric/support.hpp"
#include "own_network.hpp"
#include "verbs_test.hpp"

namespace softverbs::fabric::testing {
namespace {

namespace cm = softverbs::cm;
using softverbs_test::Channel;

constexpr std::uint16_t first_port = 20480; // the default of SOFTVERBS_PORT
constexpr const char* secret = "the secret of both hosts";
constexpr const char* this_host = "10.79.0.2";
constexpr const char* other_host = "10.79.0.1";
constexpr const char* third_host = "10.79.0.3";
constexpr const char* missing_namespaces = "this process cannot create a network namespace";

HostAddress host(const char* address) {
    return *parse_host_address(address);
}

cm::Gid gid(const char* address) {
    cm::Gid made{};
    const HostAddress parsed = host(address);
    std::memcpy(made.data(), parsed.bytes.data(), made.size());
    return made;
}

std::vector<std::byte> secret_bytes() {
    const std::string text = secret;
    std::vector<std::byte> bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
}

/// Whether this process could become the host this_host.
bool is_own_host = false; // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

/// Moves this process to a network namespace that has the addresses of both hosts, and makes it the
/// host this_host, before the first call of verbs.
class OwnHost : public ::testing::Environment {
  public:
    void SetUp() override {
        // A skip here would end the run with success and without a skipped test.
        is_own_host = softverbs_test::enter_own_network();
        if (!is_own_host) {
            return;
        }
        const auto add = [](const char* address) {
            return " && ip addr add " + std::string(address) + "/32 dev lo";
        };
        ASSERT_TRUE(softverbs_test::run("ip link set lo up" + add(this_host) + add(other_host)));
        const std::string file = directory_.path() + "/secret";
        std::ofstream(file) << secret;
        ASSERT_EQ(::chmod(file.c_str(), S_IRUSR | S_IWUSR), 0);
        const std::string rendezvous = directory_.path() + "/rendezvous";
        ::setenv("SOFTVERBS_DIR", rendezvous.c_str(), 1);
        ::setenv("SOFTVERBS_NETWORK", "unprotected-tcp", 1);
        ::setenv("SOFTVERBS_SECRET_FILE", file.c_str(), 1);
        ::setenv("SOFTVERBS_ADDRESS", this_host, 1);
    }

  private:
    TemporaryDirectory directory_;
};
// NOLINTNEXTLINE(cert-err58-cpp): gtest terminates the program if this fails
const ::testing::Environment* const own_host = ::testing::AddGlobalTestEnvironment(new OwnHost);

/// Returns the slot of this process for messages of the connection manager.
std::uint32_t cm_slot() {
    const std::string directory = std::string(std::getenv("SOFTVERBS_DIR")) + "/cm";
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        if (entry.path().extension() == ".sock") {
            return static_cast<std::uint32_t>(std::stoul(entry.path().stem()));
        }
    }
    ADD_FAILURE() << "no socket in " << directory;
    return 0;
}

/// A process of another host, which exchanges messages of the connection manager with this process.
class RemoteManager {
  public:
    RemoteManager() {
        NodeOptions options;
        options.directory = directory_.path();
        options.network.addresses = {host(other_host)};
        options.network.first_slot = first_cm_slot;
        options.network.secret = secret_bytes();
        peer_ = std::make_unique<Peer>(options);
        connection_ = peer_->node->connect(Route{host(other_host), host(this_host)}, cm_slot());
        EXPECT_NE(connection_, nullptr) << std::strerror(errno);
    }

    void send(const cm::Message& message) {
        const cm::Envelope envelope{.process = random_bits | peer_->node->slot(),
                                    .message = message};
        const std::string_view record(reinterpret_cast<const char*>(&envelope), sizeof envelope);
        EXPECT_EQ(testing::send(*connection_, Lane::requests, record), Sent::sent);
    }
    /// Returns the next message. Returns nothing if this process has closed the connection.
    [[nodiscard]] std::optional<cm::Message> receive() {
        auto& arrived = peer_->seen.requests;
        EXPECT_TRUE(
            turn_until({peer_.get()}, [&] { return !arrived.empty() || peer_->seen.gone != 0; }));
        if (arrived.empty() || arrived.front().size() != sizeof(cm::Envelope)) {
            return std::nullopt;
        }
        cm::Envelope envelope{};
        std::memcpy(&envelope, arrived.front().data(), sizeof envelope);
        arrived.erase(arrived.begin());
        return envelope.message;
    }

  private:
    static constexpr std::uint64_t random_bits = 0x123450000;

    TemporaryDirectory directory_;
    std::unique_ptr<Peer> peer_;
    Connection* connection_ = nullptr;
};

// These tests come first, because librdmacm keeps the devices open, which softverbs_reset() does
// not permit.
class ForgedDatagram : public softverbs_test::VerbsTest {
  protected:
    static constexpr std::size_t payload = 100;
    static constexpr std::uint32_t buffer = 256;
    static constexpr unsigned slot_shift = 14; // of a queue pair number

    void SetUp() override {
        if (!is_own_host) {
            GTEST_SKIP() << missing_namespaces;
        }
        VerbsTest::SetUp();
        cq_ = make_cq(8);
        qp_ = make_qp(IBV_QPT_UD, cq_.get());
        connect(qp_.get(), 0);
        group_.raw[0] = 0xff;
        group_.raw[1] = 0x12;
        group_.raw[15] = 9;
        ASSERT_EQ(ibv_attach_mcast(qp_.get(), &group_, 0), 0);
        mr_ = make_mr(memory_.data(), memory_.size());
        options_.directory = directory_.path();
        options_.network.addresses = {host(other_host)};
        options_.network.first_port = first_port;
        options_.network.secret = secret_bytes();
        peer_ = std::make_unique<Peer>(options_);
        connection_ = peer_->node->connect(Route{host(other_host), host(this_host)},
                                           qp_->qp_num >> slot_shift);
        ASSERT_NE(connection_, nullptr);
    }
    void TearDown() override {
        if (!is_own_host) {
            return;
        }
        EXPECT_EQ(ibv_detach_mcast(qp_.get(), &group_, 0), 0);
        qp_.reset();
        mr_.reset();
        cq_.reset();
    }
    /// Posts a receive into buffer number @p id of memory_.
    void receive(std::uint64_t id) {
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()) + id * buffer, buffer,
                    mr_->lkey};
        ibv_recv_wr wr{id, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_recv(qp_.get(), &wr, &bad), 0);
    }
    /// Sends a datagram from the other host.
    void send(const char* source, std::uint32_t destination, char letter) {
        PacketHeader header{};
        header.magic = packet_magic;
        header.kind = PacketHeader::Kind::send;
        header.service = IBV_QPT_UD;
        header.flags = PacketHeader::has_grh;
        header.destination = destination;
        header.source = peer_->node->slot() << slot_shift | 5U;
        header.qkey = good_attributes().qkey;
        header.length = header.payload = payload;
        header.device = 0xff;
        const cm::Gid from = gid(source);
        std::memcpy(&header.source_gid, from.data(), from.size());
        header.destination_gid = group_;
        std::string record(reinterpret_cast<const char*>(&header), sizeof header);
        record.append(payload, letter);
        ASSERT_EQ(testing::send(*connection_, Lane::requests, record), Sent::sent);
    }
    /// Returns the first letter of the next datagram that arrives.
    [[nodiscard]] char next() {
        ibv_wc wc{};
        EXPECT_TRUE(softverbs_test::eventually([&] { return ibv_poll_cq(cq_.get(), 1, &wc) != 0; },
                                               [this] { peer_->turn(); }));
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.byte_len, payload + sizeof(ibv_grh));
        return static_cast<char>(memory_[wc.wr_id * buffer + sizeof(ibv_grh)]);
    }
    static constexpr std::uint32_t multicast_qp = 0xffffff;
    ibv_gid group_{};
    softverbs_test::UniqueCq cq_;
    softverbs_test::UniqueQp qp_;
    std::array<std::byte, std::size_t{2} * buffer> memory_{};
    softverbs_test::UniqueMr mr_;
    TemporaryDirectory directory_;
    NodeOptions options_;
    std::unique_ptr<Peer> peer_;
    Connection* connection_ = nullptr;
};

TEST_F(ForgedDatagram, IsDroppedIfTheGidIsThatOfAnotherHost) {
    for (const std::uint32_t destination : {qp_->qp_num, multicast_qp}) {
        SCOPED_TRACE(destination);
        receive(0);
        receive(1);
        send(third_host, destination, 'f');
        send(other_host, destination, 't');
        EXPECT_EQ(next(), 't');
        send(other_host, destination, 'l'); // takes the other receive
        EXPECT_EQ(next(), 'l');
    }
}

class ForgedRequest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!is_own_host) {
            GTEST_SKIP() << missing_namespaces;
        }
        channel_.emplace();
        listener_ = channel_->listen(RDMA_PS_TCP, 8, this_host);
        manager_.emplace();
    }
    /// Returns a valid request for the id that listens.
    [[nodiscard]] cm::Message request() const {
        cm::Message made{};
        made.magic = cm::Message::current_magic;
        made.type = cm::MessageType::req;
        made.qp_type = IBV_QPT_RC;
        made.sender_id = 77;
        made.port_space = RDMA_PS_TCP;
        made.mtu = IBV_MTU_1024;
        made.source = {gid(other_host), AF_INET, 4321};
        made.destination = {gid(this_host), AF_INET, ntohs(rdma_get_src_port(listener_.get()))};
        made.sgid = gid(other_host);
        made.dgid = gid(this_host);
        made.qp_num = 0x123;
        return made;
    }
    /// Sends a request, and expects a REJ with the reason.
    void expect_reject(const cm::Message& request, std::uint8_t reason) {
        manager_->send(request);
        const auto reply = manager_->receive();
        ASSERT_TRUE(reply.has_value());
        EXPECT_EQ(reply->type, cm::MessageType::rej);
        EXPECT_EQ(reply->status, reason);
        EXPECT_EQ(reply->recipient_id, request.sender_id);
    }
    /// Sends a valid request, and expects that the program gets it as its next event.
    void expect_delivery() {
        manager_->send(request());
        const softverbs_test::SeenEvent event = channel_->next();
        EXPECT_EQ(event.type, RDMA_CM_EVENT_CONNECT_REQUEST);
        const softverbs_test::UniqueId id(event.id);
        EXPECT_EQ(event.conn.qp_num, 0x123U);
    }

    std::optional<Channel> channel_;
    softverbs_test::UniqueId listener_;
    std::optional<RemoteManager> manager_;
};

constexpr std::uint8_t invalid_gid = 12;
constexpr std::uint8_t invalid_mtu = 26;

TEST_F(ForgedRequest, IsRejectedIfTheGidIsThatOfAnotherHost) {
    cm::Message forged = request();
    forged.sgid = gid(third_host);
    expect_reject(forged, invalid_gid);
    expect_delivery();
}

TEST_F(ForgedRequest, IsRejectedIfTheGidIsThatOfTheReceiver) {
    cm::Message forged = request();
    forged.sgid = gid(this_host);
    expect_reject(forged, invalid_gid);
    expect_delivery();
}

TEST_F(ForgedRequest, IsRejectedIfTheIpAddressIsThatOfAnotherHost) {
    cm::Message forged = request();
    forged.source.address = gid(third_host);
    expect_reject(forged, invalid_gid);
    expect_delivery();
}

TEST_F(ForgedRequest, IsRejectedWithoutAPathMtu) {
    for (const int mtu : {0, IBV_MTU_4096 + 1, 15}) {
        cm::Message bad = request();
        bad.mtu = static_cast<std::uint8_t>(mtu);
        expect_reject(bad, invalid_mtu);
    }
    expect_delivery();
}

/// A change that makes a message invalid: a member gets a value that its field on a wire cannot
/// have.
struct Change {
    const char* member;
    void (*apply)(cm::Message& request);
};

class InvalidRequest : public ForgedRequest, public ::testing::WithParamInterface<Change> {};

TEST_P(InvalidRequest, EndsTheConnection) {
    cm::Message invalid = request();
    GetParam().apply(invalid);
    manager_->send(invalid);
    EXPECT_FALSE(manager_->receive().has_value());
    EXPECT_FALSE(softverbs_test::is_readable(channel_->fd()));
}

INSTANTIATE_TEST_SUITE_P(
    Member, InvalidRequest,
    ::testing::Values(
        Change{"magic", [](cm::Message& request) { request.magic = 1; }},
        Change{"type", [](cm::Message& request) { request.type = cm::MessageType{10}; }},
        Change{"private_data_size", [](cm::Message& request) { request.private_data_size = 93; }},
        Change{"qp_num", [](cm::Message& request) { request.qp_num = 0x1000000; }},
        Change{"psn", [](cm::Message& request) { request.psn = 0x1000000; }},
        Change{"mtu", [](cm::Message& request) { request.mtu = 16; }},
        Change{"flow_control", [](cm::Message& request) { request.flow_control = 2; }},
        Change{"srq", [](cm::Message& request) { request.srq = 2; }},
        Change{"retry_count", [](cm::Message& request) { request.retry_count = 8; }},
        Change{"rnr_retry_count", [](cm::Message& request) { request.rnr_retry_count = 8; }},
        Change{"source_family", [](cm::Message& request) { request.source.family = AF_UNIX; }},
        Change{"destination_family", [](cm::Message& request) { request.destination.family = 0; }}),
    [](const auto& test) { return test.param.member; });

} // namespace
} // namespace softverbs::fabric::testing
