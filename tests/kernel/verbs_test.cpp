// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs and queues of every sort on a real device, with host memory.
#include <algorithm>
#include <array>
#include <utility>

#include <gmock/gmock.h>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/region.hpp>

#include "fails_with.hpp"
#include "loopback.hpp"
#include "support.hpp"
#include "waiting.hpp"

namespace rdmabuf::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Verbs : public ::testing::Test {
  protected:
    Loopback net_;
    std::unique_ptr<Memory> from_ = make_memory("host", net_.a.pd, 8192);
    std::unique_ptr<Memory> to_ = make_memory("host", net_.b.pd, 8192);
    std::vector<std::byte> sent_ = pattern(4000, 1);

    [[nodiscard]] ibv_sge local() const { return from_->region().sge(0, 4000); }
    [[nodiscard]] ibv_sge receive() const { return to_->region().sge(0, 8192); }
    [[nodiscard]] RemoteRegion remote() const { return to_->region().remote(); }
};

// Device

TEST_F(Verbs, DeviceTellsAboutItself) {
    EXPECT_EQ(net_.context.device_name(), "rxe0");
    EXPECT_TRUE(net_.context.attributes().atomics());
    EXPECT_EQ(net_.context.attributes().port_count(), 1);
    EXPECT_EQ(net_.context.port(1).state, IBV_PORT_ACTIVE);
    EXPECT_EQ(to_string(net_.context.best_gid(1).gid), "::ffff:192.0.2.1");
    EXPECT_EQ(net_.context.best_gid(1).type, GidType::roce_v2);
    EXPECT_EQ(DeviceList().find("rxe0").driver(), "rxe");
    EXPECT_THAT(error_of([&] { static_cast<void>(net_.context.port(2)); }),
                fails_with("ibv_query_port", EINVAL, "rxe0, which has ports 1 to 1"));
    EXPECT_THAT(error_of([] { static_cast<void>(Context::open("mlx5_0")); }),
                fails_with("ibv_get_device_list", ENODEV, "there are rxe0 (GUID "));
}

TEST_F(Verbs, LimitsOfTheDeviceAreNamed) {
    EXPECT_THAT(error_of([&] { CompletionQueue(net_.context, {.depth = 1U << 30U}); }),
                fails_with("ibv_create_cq", EINVAL, "depth 1073741824 of at most "));
    QueuePairOptions options{.send_cq = net_.a.cq, .recv_cq = net_.a.cq, .max_send_wr = 1U << 30U};
    EXPECT_THAT(error_of([&] { static_cast<void>(QueuePair::prepare(net_.a.pd, options)); }),
                fails_with("ibv_create_qp", EINVAL, "max_send_wr 1073741824 is above"));
}

// Transports

TEST_F(Verbs, UnreliableConnectionSendsAndWrites) {
    net_.connect(QueuePairType::unreliable_connected);
    from_->put(0, sent_);
    ASSERT_TRUE(net_.b.qp->post_recv(receive(), 20));
    ASSERT_TRUE(net_.a.qp->post_send(local(), {.wr_id = 10}));
    net_.a.expect(10);
    EXPECT_EQ(net_.b.expect(20).byte_len, 4000U);
    EXPECT_EQ(to_->get(0, 4000), sent_);

    ASSERT_TRUE(net_.b.qp->post_recv(std::span<const ibv_sge>(), 21));
    ASSERT_TRUE(net_.a.qp->post_write_imm(local(), remote().at(4096), 7, {.wr_id = 11}));
    net_.a.expect(11);
    net_.b.expect(21);
    EXPECT_EQ(to_->get(4096, 4000 - 4), pattern(3996, 1));
}

TEST_F(Verbs, DatagramsArriveBehindTheGrh) {
    constexpr std::size_t grh = 40;
    constexpr std::uint32_t length = 1000;
    PreparedQueuePair prepared_a = net_.prepare(net_.a, QueuePairType::unreliable_datagram);
    PreparedQueuePair prepared_b = net_.prepare(net_.b, QueuePairType::unreliable_datagram);
    const QueuePairAddress to = prepared_b.address();
    const std::uint8_t gid_index = prepared_a.connection().path.gid_index;
    net_.a.qp.emplace(std::move(prepared_a).activate());
    net_.b.qp.emplace(std::move(prepared_b).activate());
    const AddressHandle ah(net_.a.pd, to, {.port = 1, .gid_index = gid_index});
    const Destination destination{.ah = ah.native(), .queue_pair = to.number, .qkey = to.qkey};

    from_->put(0, sent_);
    ASSERT_TRUE(net_.b.qp->post_recv(receive(), 20));
    ASSERT_TRUE(
        net_.a.qp->post_send_to(from_->region().sge(0, length), destination, {.wr_id = 10}));
    net_.a.expect(10);
    const WorkCompletion received = net_.b.expect(20);
    EXPECT_EQ(received.byte_len, grh + length);
    EXPECT_EQ(received.src_qp, net_.a.qp->number());
    EXPECT_EQ(to_->get(grh, length), pattern(length, 1));

    if (net_.a.qp->extended()) {
        ASSERT_TRUE(net_.b.qp->post_recv(receive(), 21));
        WorkBatch batch = net_.a.qp->batch();
        const ibv_sge part = from_->region().sge(length, length);
        batch.send_to({&part, 1}, destination, {.wr_id = 11});
        ASSERT_TRUE(batch.complete());
        net_.a.expect(11);
        EXPECT_EQ(net_.b.expect(21).byte_len, grh + length);
        EXPECT_EQ(to_->get(grh, length), from_->get(length, length));
    }
}

// Shared receive queues and events

TEST_F(Verbs, QueuePairsShareReceivesAndTheLimitIsAnEvent) {
    const SharedReceiveQueue srq(net_.b.pd, {.max_wr = 8, .limit = 2});
    std::array<std::optional<QueuePair>, 2> senders;
    std::array<std::optional<QueuePair>, 2> receivers;
    for (std::size_t i = 0; i < 2; ++i) {
        PreparedQueuePair from = net_.prepare(net_.a, QueuePairType::reliable_connected);
        PreparedQueuePair to = QueuePair::prepare(
            net_.b.pd, {.send_cq = net_.b.cq, .recv_cq = net_.b.cq, .srq = &srq});
        const QueuePairAddress address = from.address();
        senders[i].emplace(std::move(from).connect(to.address()));
        receivers[i].emplace(std::move(to).connect(address));
    }
    RecvList<2> list;
    const std::array entries{to_->region().sge(0, 64), to_->region().sge(64, 64)};
    list.recv(std::span(entries).first(1), 20);
    list.recv(std::span(entries).last(1), 21);
    ibv_recv_wr* failed = nullptr;
    ASSERT_TRUE(srq.post(list, failed));
    from_->put(0, sent_);
    for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(senders[i]->post_send(from_->region().sge(64 * i, 64), {.wr_id = 10}));
        EXPECT_TRUE(succeeded(net_.a.next()));
        const WorkCompletion received = net_.b.next();
        EXPECT_TRUE(succeeded(received)) << describe(received);
        EXPECT_EQ(received.wr_id, 20 + i);
        EXPECT_EQ(received.qp_num, receivers[i]->number());
    }
    EXPECT_EQ(to_->get(0, 128), from_->get(0, 128));

    const auto event = net_.context.wait_async_event(time_limit);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event->object, srq.native());
    EXPECT_FALSE(net_.context.wait_async_event(0ms));
}

TEST_F(Verbs, ChannelWakesAWaitForCompletions) {
    const CompletionChannel channel(net_.context);
    net_.b.cq = CompletionQueue(net_.context, {.channel = &channel});
    net_.connect();
    EXPECT_EQ(channel.wait(0ms), nullptr);
    WorkCompletion completion{};
    EXPECT_EQ(net_.b.cq.wait({&completion, 1}, 50ms), 0U);
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(net_.b.qp->post_recv(receive(), id));
        ASSERT_TRUE(net_.a.qp->post_send(local(), {.wr_id = id}));
        net_.a.expect(id);
        net_.b.expect(id);
    }
    // By hand, with a channel that several queues could share.
    ASSERT_TRUE(net_.b.cq.request_notification());
    while (channel.wait(50ms) != nullptr) {
        ASSERT_TRUE(net_.b.cq.request_notification());
    }
    ASSERT_TRUE(net_.b.qp->post_recv(receive(), 4));
    ASSERT_TRUE(net_.a.qp->post_send(local(), {.wr_id = 4}));
    EXPECT_EQ(channel.wait(time_limit), net_.b.cq.native());
    EXPECT_EQ(net_.b.cq.poll(completion), 1);
    EXPECT_EQ(completion.wr_id, 4U);
    net_.a.expect(4);
}

// Failures

TEST_F(Verbs, WriteOutsideTheRegionIsARemoteAccessError) {
    net_.connect();
    ASSERT_TRUE(net_.b.qp->post_recv(receive(), 20));
    ASSERT_TRUE(net_.a.qp->post_write(local(), remote().at(8192 - 3999), {.wr_id = 10}));
    const WorkCompletion failed = net_.a.next();
    EXPECT_EQ(failed.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(failed.wr_id, 10U);
    EXPECT_THAT(describe(failed), HasSubstr("do not match a region of the peer"));
    EXPECT_EQ(net_.a.qp->state(), IBV_QPS_ERR);
    // What is posted from now on is flushed, and so is the peer's receive.
    ASSERT_TRUE(net_.a.qp->post_write(local(), remote(), {.wr_id = 11}));
    EXPECT_EQ(net_.a.next().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(to_->get(0, 8192), std::vector<std::byte>(8192));
}

// Host memory

TEST_F(Verbs, RelaxedOrderingIsDroppedWhereTheKernelDoesNotKnowIt) {
    std::array<std::byte, 64> memory{};
    EXPECT_NO_THROW(MemoryRegion(net_.a.pd, memory.data(), 64,
                                 {.access = full_access | Access::relaxed_ordering}));
}

} // namespace
} // namespace rdmabuf::testing
