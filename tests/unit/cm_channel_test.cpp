// SPDX-License-Identifier: BSD-3-Clause
// Many connections on one event channel, by the unmodified librdmacm on softverbs, which has a RoCE
// device here.
#include <dlfcn.h>
#include <netinet/in.h>
#include <softverbs/softverbs.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/cm_channel.hpp>
#include <rdmabuf/cm_multicast.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "fails_with.hpp"
#include "support.hpp"
#include "waiting.hpp"

namespace {

/// softverbs reads the environment when the program first uses a device. Devices of this profile
/// have ECE.
[[maybe_unused]] const int set =
    ::setenv("SOFTVERBS_LINK_LAYER", "ethernet", 1) + ::setenv("SOFTVERBS_PROFILE", "mlx5", 1);

/// The address vectors of the address handles that the program has created.
std::vector<ibv_ah_attr> address_vectors;

template <class Function>
Function* next_definition(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

} // namespace

// A program's own definitions win over those of shared libraries.
extern "C" {
/// Adds what the subnet manager of an InfiniBand network may say of a multicast group.
int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
    static auto* const real = next_definition<decltype(rdma_get_cm_event)>("rdma_get_cm_event");
    const int result = real(channel, event);
    if (result == 0 && (*event)->event == RDMA_CM_EVENT_MULTICAST_JOIN) {
        ibv_ah_attr& address = (*event)->param.ud.ah_attr;
        address.static_rate = IBV_RATE_40_GBPS;
        address.src_path_bits = 3;
        address.grh.flow_label = 0x12345;
    }
    return result;
}
ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
    static auto* const real = next_definition<decltype(ibv_create_ah)>("ibv_create_ah");
    address_vectors.push_back(*attributes);
    return real(pd, attributes);
}
}

namespace rdmabuf {
namespace {

using cm::AsyncConnection;
using cm::AsyncListener;
using cm::ChannelEvent;
using cm::EventChannel;
using cm::EventType;
using cm::MulticastGroup;
using cm::MulticastRole;
using testing::error_of;
using testing::fails_with;
using namespace std::chrono_literals;
using State = AsyncConnection::State;

constexpr auto long_enough = 20s;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

/// The text in private data, without the zeros that pad it.
std::string text_of(std::span<const std::byte> data) {
    const std::string text(reinterpret_cast<const char*>(data.data()), data.size());
    return text.substr(0, text.find('\0'));
}

/// The objects of a test on the context of librdmacm.
struct Resources {
    explicit Resources(const Context& context, unsigned depth = 64)
        : pd(context), cq(context, {.depth = depth}) {}

    [[nodiscard]] PreparedQueuePair prepare(
        QueuePairType type = QueuePairType::reliable_connected) const {
        QueuePairOptions options{.send_cq = cq, .recv_cq = cq, .type = type};
        options.max_send_wr = 4;
        options.max_recv_wr = 4;
        options.qkey = cm::multicast_qkey;
        return QueuePair::prepare(pd, options);
    }
    /// Waits for a completion.
    [[nodiscard]] WorkCompletion completion() const { return cq.wait_one(long_enough).value(); }

    ProtectionDomain pd;
    CompletionQueue cq;
    std::array<std::byte, 4096> memory{};
    MemoryRegion region{pd, memory.data(), memory.size(), {.access = full_access}};
};

class CmChannel : public ::testing::Test {
  public:
    ~CmChannel() override { EXPECT_EQ(softverbs_unacknowledged_events(), 0U); }

  protected:
    CmChannel() : listener_(channel_, "127.0.0.1", 0, 1024, &listener_) {}

    /// The next event, which has to be of @p type.
    ChannelEvent next(EventType type) {
        std::optional<ChannelEvent> event = channel_.wait(long_enough);
        if (!event) {
            ADD_FAILURE() << "no event arrived";
            return {};
        }
        EXPECT_STREQ(to_string(event->type), to_string(type))
            << (event->error ? event->error->what() : "");
        return *std::move(event);
    }

    AsyncConnection begin(void* user_data = nullptr) {
        return {channel_, "127.0.0.1", listener_.port(), long_enough, user_data};
    }
    AsyncConnection resolved(void* user_data = nullptr) {
        AsyncConnection connection = begin(user_data);
        EXPECT_EQ(next(EventType::resolved).id, connection.native());
        if (!resources_) {
            resources_ = std::make_unique<Resources>(connection.context());
        }
        return connection;
    }

    struct Pair {
        AsyncConnection client, server;
    };
    /// A connection whose request was reported and is not yet accepted.
    Pair requested() {
        AsyncConnection client = resolved();
        client.connect(resources_->prepare(), bytes_of("hello"));
        ChannelEvent event = next(EventType::connect_request);
        return {std::move(client), *std::move(event.request)};
    }
    Pair connected() {
        Pair pair = requested();
        pair.server.accept(resources_->prepare(), bytes_of("welcome"));
        static_cast<void>(next(EventType::established));
        static_cast<void>(next(EventType::established));
        return pair;
    }

    EventChannel channel_;
    AsyncListener listener_;
    std::unique_ptr<Resources> resources_;
};

TEST_F(CmChannel, HundredsOfConnectionsUseOneDescriptor) {
    constexpr std::size_t count = 300;
    struct Peer {
        std::optional<AsyncConnection> connection;
        std::size_t number = 0;
    };
    std::vector<Peer> clients(count);
    std::map<const rdma_cm_id*, AsyncConnection> servers;
    std::optional<Resources> resources;
    std::vector<std::uint32_t> sent(count);
    std::vector<std::uint32_t> received(count);
    std::optional<MemoryRegion> from;
    std::optional<MemoryRegion> to;

    { // What softverbs and librdmacm open once, they have open before the count.
        const Pair pair = connected();
    }
    while (channel_.next_event()) {
    }
    const auto descriptors = testing::open_descriptors();
    for (std::size_t i = 0; i < count; ++i) {
        clients[i].number = i;
        clients[i].connection.emplace(begin(&clients[i]));
    }
    std::size_t established = 0;
    while (established < 2 * count) {
        std::optional<ChannelEvent> event = channel_.wait(long_enough);
        ASSERT_TRUE(event) << established << " ends are connected";
        if (event->type == EventType::resolved) {
            Peer& peer = *static_cast<Peer*>(event->user_data);
            ASSERT_EQ(event->id, peer.connection->native());
            if (!resources) {
                resources.emplace(peer.connection->context(), 4 * count);
                from.emplace(resources->pd, sent.data(), sizeof(std::uint32_t) * count);
                to.emplace(resources->pd, received.data(), sizeof(std::uint32_t) * count);
            }
            peer.connection->connect(resources->prepare(),
                                     std::as_bytes(std::span(&peer.number, 1)));
        } else if (event->type == EventType::connect_request) {
            EXPECT_EQ(event->id, listener_.native());
            EXPECT_EQ(event->user_data, &listener_);
            std::size_t number = 0;
            std::memcpy(&number, event->request->private_data().data(), sizeof number);
            PreparedQueuePair prepared = resources->prepare();
            ASSERT_TRUE(prepared.post_recv(to->sge(4 * number, 4), count + number).ok());
            event->request->accept(std::move(prepared));
            const rdma_cm_id* const id = event->request->native();
            servers.emplace(id, *std::move(event->request));
        } else {
            ASSERT_STREQ(to_string(event->type), "established")
                << (event->error ? event->error->what() : "");
            ++established;
        }
    }
    EXPECT_EQ(servers.size(), count);
    EXPECT_EQ(testing::open_descriptors().size(), descriptors.size());

    for (std::size_t i = 0; i < count; ++i) {
        sent[i] = 0x5a000000U + static_cast<std::uint32_t>(i);
        ASSERT_TRUE(
            clients[i].connection->queue_pair().post_send(from->sge(4 * i, 4), {.wr_id = i}).ok());
    }
    for (std::size_t i = 0; i < 2 * count; ++i) {
        ASSERT_TRUE(succeeded(resources->completion()));
    }
    EXPECT_EQ(received, sent);

    // Half of the clients disconnect, the others are destroyed: each server end is notified.
    for (std::size_t i = 0; i < count; ++i) {
        if (i % 2 == 0) {
            clients[i].connection->disconnect();
        } else {
            clients[i].connection.reset();
        }
    }
    std::size_t ended_clients = 0;
    while (!servers.empty() || ended_clients < count / 2) {
        const ChannelEvent event = next(EventType::disconnected);
        ASSERT_EQ(event.type, EventType::disconnected);
        const auto server = servers.find(event.id);
        if (server == servers.end()) {
            EXPECT_EQ(static_cast<Peer*>(event.user_data)->connection->state(), State::closed);
            ++ended_clients;
            continue;
        }
        EXPECT_EQ(server->second.queue_pair().state(), IBV_QPS_ERR);
        servers.erase(server);
    }
    EXPECT_FALSE(channel_.next_event());
}

TEST_F(CmChannel, EpollReportsThatThereIsAnEvent) {
    const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event wanted{.events = EPOLLIN, .data = {.fd = channel_.fd()}};
    ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, channel_.fd(), &wanted), 0);
    epoll_event seen{};
    EXPECT_EQ(::epoll_wait(epoll.get(), &seen, 1, 0), 0);
    EXPECT_FALSE(channel_.next_event());

    const AsyncConnection connection = begin();
    ASSERT_EQ(::epoll_wait(epoll.get(), &seen, 1, -1), 1);
    EXPECT_EQ(seen.data.fd, channel_.fd());
    EXPECT_EQ(next(EventType::resolved).id, connection.native());
    EXPECT_FALSE(testing::is_readable(channel_.fd()));
}

TEST_F(CmChannel, WaitEndsAfterItsTimeout) {
    EXPECT_TRUE(testing::lasts_at_least(50ms, [&] { EXPECT_FALSE(channel_.wait(50ms)); }));
}

TEST_F(CmChannel, BothEndsGetThePrivateDataOfTheOtherWithoutTheListener) {
    Pair pair = requested();
    EXPECT_EQ(text_of(pair.server.private_data()), "hello");
    EXPECT_EQ(pair.server.state(), State::requested);
    EXPECT_EQ(pair.client.state(), State::connecting);
    { const AsyncListener destroyed = std::move(listener_); }
    pair.server.accept(resources_->prepare(), bytes_of("welcome"));
    static_cast<void>(next(EventType::established));
    static_cast<void>(next(EventType::established));
    EXPECT_EQ(text_of(pair.client.private_data()), "welcome");
    EXPECT_EQ(pair.client.state(), State::established);
    EXPECT_EQ(pair.server.state(), State::established);
}

TEST_F(CmChannel, BothEndsUseTheEceOptionsOfTheOffer) {
    AsyncConnection client = resolved();
    PreparedQueuePair prepared = resources_->prepare();
    ibv_ece offer = prepared.ece();
    ASSERT_NE(offer.options, 0U);
    offer.options = 0;
    prepared.set_ece(offer);
    client.connect(std::move(prepared), {});
    AsyncConnection server = *std::move(next(EventType::connect_request).request);
    server.accept(resources_->prepare(), {});
    static_cast<void>(next(EventType::established));
    static_cast<void>(next(EventType::established));
    EXPECT_EQ(server.queue_pair().ece().options, 0U);
    EXPECT_EQ(client.queue_pair().ece().options, 0U);
}

TEST_F(CmChannel, RejectionHasItsReason) {
    Pair pair = requested();
    pair.server.reject(bytes_of("no space left"));
    const ChannelEvent event = next(EventType::failed);
    EXPECT_EQ(event.id, pair.client.native());
    EXPECT_THAT(event.error, fails_with("rdma_connect", ECONNREFUSED, "message \"no space left\""));
    EXPECT_EQ(pair.client.state(), State::closed);
    EXPECT_EQ(pair.server.state(), State::closed);
}

TEST_F(CmChannel, DestroyedRequestIsRejected) {
    std::optional<Pair> pair = requested();
    { const AsyncConnection destroyed = std::move(pair->server); }
    EXPECT_THAT(next(EventType::failed).error, fails_with("rdma_connect", ECONNREFUSED, ""));
}

TEST_F(CmChannel, ConnectionSurvivesTheObjectOfItsChannel) {
    Pair pair = connected();
    EXPECT_THAT(error_of([&] { channel_.close(); }),
                fails_with("rdma_destroy_event_channel", EBUSY, ""));
    { const EventChannel destroyed = std::move(channel_); }
    resources_->memory[0] = std::byte{42};
    ASSERT_TRUE(pair.server.queue_pair().post_recv(resources_->region.sge(64, 64), 1).ok());
    ASSERT_TRUE(pair.client.queue_pair().post_send(resources_->region.sge(0, 64)).ok());
    EXPECT_TRUE(succeeded(resources_->completion()));
    EXPECT_TRUE(succeeded(resources_->completion()));
    EXPECT_EQ(resources_->memory[64], std::byte{42});
    EXPECT_THAT(
        error_of([&] { static_cast<void>(channel_.next_event()); }), // NOLINT(*-use-after-move)
        fails_with("rdma_get_cm_event", EBADF, "EventChannel"));
    EXPECT_THAT(error_of([&] { static_cast<void>(channel_.fd()); }),
                fails_with("EventChannel::fd", EBADF, "EventChannel"));
    EXPECT_THAT(error_of([&] { static_cast<void>(begin()); }),
                fails_with("rdma_create_id", EBADF, "EventChannel"));
}

TEST_F(CmChannel, PortWithoutAListenerRefuses) {
    const std::uint16_t port = listener_.port();
    { const AsyncListener destroyed = std::move(listener_); }
    AsyncConnection connection(channel_, "127.0.0.1", port, long_enough);
    static_cast<void>(next(EventType::resolved));
    const Resources resources(connection.context());
    connection.connect(resources.prepare());
    EXPECT_THAT(next(EventType::failed).error,
                fails_with("rdma_connect", ECONNREFUSED, "no program listens at this address"));
}

TEST_F(CmChannel, AddressWithoutADeviceIsAFailedEvent) {
    // 192.0.2.0/24 is reserved for documentation (RFC 5737).
    const AsyncConnection connection(channel_, "192.0.2.77", 4711, long_enough);
    const ChannelEvent event = next(EventType::failed);
    EXPECT_EQ(event.id, connection.native());
    EXPECT_THAT(event.error,
                fails_with("rdma_resolve_addr", ENODEV, "the address 192.0.2.77:4711"));
    EXPECT_EQ(connection.state(), State::closed);
}

TEST_F(CmChannel, LocalAddressAndTypeOfServiceAreThoseOfTheOptions) {
    const cm::RouteOptions options{.local_host = "127.0.0.1", .type_of_service = 0x68};
    std::vector<AsyncConnection> servers;
    const auto path_of = [&](AsyncConnection& connection, PreparedQueuePair prepared) {
        connection.connect(std::move(prepared));
        ChannelEvent event = next(EventType::connect_request);
        servers.push_back(*std::move(event.request));
        servers.back().accept(resources_->prepare());
        static_cast<void>(next(EventType::established));
        static_cast<void>(next(EventType::established));
        return connection.queue_pair().attributes(IBV_QP_AV).ah_attr;
    };
    AsyncConnection first(channel_, "127.0.0.1", listener_.port(), long_enough, nullptr, options);
    static_cast<void>(next(EventType::resolved));
    EXPECT_EQ(
        reinterpret_cast<const sockaddr_in*>(rdma_get_local_addr(first.native()))->sin_addr.s_addr,
        htonl(INADDR_LOOPBACK));
    resources_ = std::make_unique<Resources>(first.context());
    EXPECT_EQ(path_of(first, resources_->prepare()).grh.traffic_class, 0x68);

    AsyncConnection second(channel_, "127.0.0.1", listener_.port(), long_enough, nullptr, options);
    static_cast<void>(next(EventType::resolved));
    QueuePairOptions wanted{.send_cq = resources_->cq, .recv_cq = resources_->cq};
    wanted.traffic_class = 0x20;
    wanted.flow_label = 0x12345;
    wanted.static_rate = IBV_RATE_40_GBPS;
    const ibv_ah_attr path = path_of(second, QueuePair::prepare(resources_->pd, wanted));
    EXPECT_EQ(path.grh.traffic_class, 0x20);
    EXPECT_EQ(path.grh.flow_label, 0x12345U);
    EXPECT_EQ(path.static_rate, IBV_RATE_40_GBPS);
}

TEST_F(CmChannel, LocalAddressOfAnotherMachineOrFamilyIsRefused) {
    const auto refusal = [&](const char* local_host) {
        return error_of([&] {
            const AsyncConnection connection(channel_, "127.0.0.1", listener_.port(), long_enough,
                                             nullptr, {.local_host = local_host});
        });
    };
    EXPECT_THAT(refusal("192.0.2.77"),
                fails_with("rdma_resolve_addr", EADDRNOTAVAIL,
                           "192.0.2.77:0 is not an address of this machine"));
    EXPECT_THAT(refusal("::1"), fails_with("rdma_resolve_addr", EINVAL, "127.0.0.1:"));
    EXPECT_THAT(error_of([&] {
                    const cm::Route route("127.0.0.1", listener_.port(), long_enough,
                                          {.local_host = "192.0.2.77"});
                }),
                fails_with("rdma_resolve_addr", EADDRNOTAVAIL, "192.0.2.77:0"));
    const cm::Route route("127.0.0.1", listener_.port(), long_enough,
                          {.local_host = "127.0.0.1", .type_of_service = 4});
    EXPECT_EQ(route.port(), 1);
}

TEST_F(CmChannel, DisconnectReachesThePeerAndIsAnswered) {
    Pair pair = connected();
    pair.client.disconnect();
    EXPECT_EQ(pair.client.state(), State::disconnecting);
    EXPECT_EQ(pair.client.queue_pair().state(), IBV_QPS_ERR);
    std::vector<rdma_cm_id*> ended{next(EventType::disconnected).id,
                                   next(EventType::disconnected).id};
    EXPECT_THAT(ended, ::testing::UnorderedElementsAre(pair.client.native(), pair.server.native()));
    EXPECT_EQ(pair.server.queue_pair().state(), IBV_QPS_ERR);
    EXPECT_EQ(pair.server.state(), State::closed);
    EXPECT_FALSE(channel_.next_event());
}

TEST_F(CmChannel, ChildThatDestroysAConnectionDoesNotDisconnectIt) {
    std::optional<Pair> pair = connected();
    // The group is destroyed before its member: a queue pair in a group cannot be destroyed.
    const QueuePair member = resources_->prepare(QueuePairType::unreliable_datagram).activate();
    MulticastGroup group(channel_, "239.1.2.6", "127.0.0.1", long_enough);
    static_cast<void>(next(EventType::resolved));
    group.join(member);
    static_cast<void>(next(EventType::multicast_joined));
    const testing::TeardownFailures failures;
    const pid_t child = ::fork();
    if (child == 0) {
        pair.reset();
        { const MulticastGroup destroyed = std::move(group); }
        { const AsyncListener destroyed = std::move(listener_); }
        { const EventChannel destroyed = std::move(channel_); }
        ::_exit(testing::TeardownFailures::seen().empty() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "a destructor in the child called librdmacm";
    EXPECT_FALSE(channel_.wait(50ms));
    resources_->memory[0] = std::byte{42};
    ASSERT_TRUE(pair->server.queue_pair().post_recv(resources_->region.sge(64, 64), 1).ok());
    ASSERT_TRUE(pair->client.queue_pair().post_send(resources_->region.sge(0, 64)).ok());
    EXPECT_TRUE(succeeded(resources_->completion()));
    EXPECT_TRUE(succeeded(resources_->completion()));
    EXPECT_EQ(resources_->memory[64], std::byte{42});
}

TEST_F(CmChannel, FunctionsInAWrongStateSayWhichStateItIs) {
    AsyncConnection connection = begin();
    EXPECT_THAT(error_of([&] { static_cast<void>(connection.queue_pair()); }),
                fails_with("AsyncConnection::queue_pair", ENOTCONN,
                           "the connection is resolving, not established"));
    EXPECT_THAT(error_of([&] { connection.disconnect(); }),
                fails_with("rdma_disconnect", ENOTCONN, "resolving, not established"));
    static_cast<void>(next(EventType::resolved));
    const Resources resources(connection.context());
    EXPECT_THAT(error_of([&] { connection.accept(resources.prepare()); }),
                fails_with("rdma_accept", ENOTCONN, "resolved, not requested"));
    EXPECT_THAT(error_of([&] { connection.reject(); }),
                fails_with("rdma_reject", ENOTCONN, "resolved, not requested"));
    const std::vector<std::byte> long_data(57);
    EXPECT_THAT(error_of([&] { connection.connect(resources.prepare(), long_data); }),
                fails_with("rdma_connect", EMSGSIZE, "at most 56 bytes"));
    const Resources other(Context::open_first());
    EXPECT_THAT(error_of([&] { connection.connect(other.prepare()); }),
                fails_with("rdma_connect", EINVAL, "another context"));
    EXPECT_EQ(connection.state(), State::resolved);
    { const AsyncConnection destroyed = std::move(connection); }
    EXPECT_THAT(
        error_of([&] { static_cast<void>(connection.state()); }), // NOLINT(*-use-after-move)
        fails_with("AsyncConnection::state", EBADF, "AsyncConnection"));
    EXPECT_EQ(connection.native(), nullptr);
}

TEST_F(CmChannel, ConnectionIsDestroyedWithUnreadEvents) {
    {
        const AsyncConnection connection = begin();
        ASSERT_TRUE(testing::becomes_readable(channel_.fd()));
    }
    EXPECT_FALSE(channel_.next_event());
}

TEST_F(CmChannel, DatagramReachesTheMembersOfAMulticastGroup) {
    MulticastGroup first(channel_, "239.1.2.3", "127.0.0.1", long_enough, &first);
    ChannelEvent event = next(EventType::resolved);
    EXPECT_EQ(event.user_data, &first);
    EXPECT_EQ(event.id, first.native());
    MulticastGroup second(channel_, "239.1.2.3", "127.0.0.1", long_enough);
    static_cast<void>(next(EventType::resolved));
    Resources resources(first.context());
    EXPECT_THAT(error_of([&] { static_cast<void>(first.destination()); }),
                fails_with("MulticastGroup::destination", ENOTCONN, "not been joined"));

    QueuePair sender = resources.prepare(QueuePairType::unreliable_datagram).activate();
    QueuePair receiver = resources.prepare(QueuePairType::unreliable_datagram).activate();
    first.join(sender, MulticastRole::send);
    EXPECT_EQ(next(EventType::multicast_joined).id, first.native());
    EXPECT_EQ(address_vectors.back().static_rate, IBV_RATE_40_GBPS);
    EXPECT_EQ(address_vectors.back().src_path_bits, 3U);
    EXPECT_EQ(address_vectors.back().grh.flow_label, 0x12345U);
    second.join(receiver);
    EXPECT_EQ(next(EventType::multicast_joined).id, second.native());
    EXPECT_THAT(error_of([&] { second.join(receiver); }),
                fails_with("rdma_join_multicast", EINVAL, "joined already"));

    ASSERT_TRUE(receiver.post_recv(resources.region.sge(1024, 140), 7).ok());
    ASSERT_TRUE(sender.post_recv(resources.region.sge(2048, 140), 8).ok());
    resources.memory.fill(std::byte{0});
    std::memset(resources.memory.data(), 0x5a, 100);
    ASSERT_TRUE(
        sender.post_send_to(resources.region.sge(0, 100), first.destination(), {.wr_id = 1}).ok());
    std::map<std::uint64_t, WorkCompletion> done;
    for (int i = 0; i < 2; ++i) {
        const WorkCompletion completion = resources.completion();
        EXPECT_TRUE(succeeded(completion));
        done.emplace(completion.wr_id, completion);
    }
    ASSERT_EQ(done.count(7), 1U);
    EXPECT_EQ(done.at(7).byte_len, 140U);
    EXPECT_EQ(done.at(7).src_qp, sender.number());
    // 40 bytes of GRH are in front.
    EXPECT_EQ(resources.memory[1024 + 40], std::byte{0x5a});
    EXPECT_EQ(resources.memory[1024 + 139], std::byte{0x5a});
    EXPECT_EQ(resources.memory[1024 + 140], std::byte{0});
    EXPECT_EQ(done.count(8), 0U) << "the sender does not receive";

    // After it has left, the receiver gets nothing and can be destroyed.
    ASSERT_TRUE(receiver.post_recv(resources.region.sge(1024, 140), 9).ok());
    second.leave();
    second.leave();
    ASSERT_TRUE(
        sender.post_send_to(resources.region.sge(0, 100), first.destination(), {.wr_id = 2}).ok());
    EXPECT_EQ(resources.completion().wr_id, 2U);
    EXPECT_FALSE(resources.cq.wait_one(20ms));
    receiver.close();
}

TEST_F(CmChannel, MulticastGroupHasNoDestinationIfItsQueuePairCannotBeAttached) {
    MulticastGroup group(channel_, "239.1.2.7", "127.0.0.1", long_enough);
    static_cast<void>(next(EventType::resolved));
    const Resources resources(group.context());
    const QueuePair member = resources.prepare(QueuePairType::unreliable_datagram).activate();
    ASSERT_EQ(softverbs_fail_call("ibv_attach_mcast", 1, ENOMEM), 0);
    group.join(member);
    EXPECT_THAT(next(EventType::failed).error, fails_with("ibv_attach_mcast", ENOMEM, ""));
    EXPECT_THAT(error_of([&] { static_cast<void>(group.destination()); }),
                fails_with("MulticastGroup::destination", ENOTCONN, "not been joined"));
    group.leave();
    group.join(member);
    static_cast<void>(next(EventType::multicast_joined));
    EXPECT_NE(group.destination().ah, nullptr);
    group.leave();
}

TEST_F(CmChannel, DestroyedMulticastGroupIsLeft) {
    MulticastGroup group(channel_, "239.1.2.4", "127.0.0.1", long_enough);
    static_cast<void>(next(EventType::resolved));
    Resources resources(group.context());
    QueuePair member = resources.prepare(QueuePairType::unreliable_datagram).activate();
    group.join(member);
    static_cast<void>(next(EventType::multicast_joined));
    EXPECT_THAT(error_of([&] { member.close(); }), fails_with("ibv_destroy_qp", EBUSY, ""));
    { const MulticastGroup destroyed = std::move(group); }
    member.close();
}

TEST_F(CmChannel, MulticastGroupTakesOnlyDatagramQueuePairsAfterItIsResolved) {
    AsyncConnection connection = resolved();
    MulticastGroup group(channel_, "239.1.2.5", "127.0.0.1", long_enough);
    const QueuePair datagrams = resources_->prepare(QueuePairType::unreliable_datagram).activate();
    EXPECT_THAT(error_of([&] { group.join(datagrams); }),
                fails_with("rdma_join_multicast", ENOTCONN, "not resolved yet"));
    EXPECT_THAT(error_of([&] { static_cast<void>(group.context()); }),
                fails_with("MulticastGroup::context", ENOTCONN, "not resolved yet"));
    static_cast<void>(next(EventType::resolved));
    PreparedQueuePair prepared = resources_->prepare();
    const QueuePairAddress itself = prepared.address();
    const QueuePair connected_pair = std::move(prepared).connect(itself);
    EXPECT_THAT(error_of([&] { group.join(connected_pair); }),
                fails_with("rdma_join_multicast", EINVAL, "is not UD"));
}

} // namespace
} // namespace rdmabuf
