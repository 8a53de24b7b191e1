// SPDX-License-Identifier: BSD-3-Clause
// How the receiver of a message on an SRD queue pair identifies the sender.
#include <endian.h>

#include <memory>
#include <optional>
#include <span>

#include <rdmabuf/srd_completion_queue.hpp>

#include "srd_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using testing::efadv_calls;
using testing::error_of;
using testing::fails_with;
using testing::Srd;
using testing::srd;

TEST_F(Srd, AddressHandleOfAnotherDeviceHasNoNumber) {
    use_default_device();
    const AddressHandle ah(a_->pd, testing::own_address(*context_), {});
    EXPECT_THAT(error_of([&] { static_cast<void>(ah.number()); }),
                fails_with("efadv_query_ah", EOPNOTSUPP, "only EFA"));
}

TEST_F(Srd, NumberOfAClosedAddressHandleIsRefused) {
    start();
    to_b_->close();
    EXPECT_THAT(error_of([&] { static_cast<void>(to_b_->number()); }),
                fails_with("efadv_query_ah", EBADF, ""));
}

/// Polls until there is a completion.
WorkCompletion next_with_sender(const SrdCompletionQueue& cq, Gid& sender) {
    WorkCompletion completion{};
    EXPECT_TRUE(testing::eventually([&] { return cq.poll(completion, sender) == 1; }));
    return completion;
}

TEST_F(Srd, ReceiverRepliesToAnUnknownSender) {
    const SrdCompletionQueue received(*context_, {.depth = 16});
    a_->start(options());
    QueuePairOptions wanted = options();
    wanted.send_cq = b_->cq;
    wanted.recv_cq = received.queue();
    b_->qp.emplace(b_->prepare(wanted).activate());
    to_b_.emplace(a_->pd, b_->address, AddressHandleOptions{});
    Gid sender = a_->address.gid;
    WorkCompletion completion{};
    EXPECT_EQ(received.poll(completion, sender), 0);

    ASSERT_TRUE(b_->qp->post_recv(b_->sge(0, 64), 1));
    ASSERT_TRUE(b_->qp->post_recv(b_->sge(64, 64), 2));
    testing::fill(std::span(a_->memory).first(48), 1);
    WorkBatch batch = a_->qp->batch();
    const ibv_sge entry = a_->sge(0, 48);
    batch.send_to({&entry, 1}, b(), {.wr_id = 3});
    ASSERT_TRUE(batch.complete());
    a_->expect(3);
    completion = next_with_sender(received, sender);
    EXPECT_TRUE(succeeded(completion)) << describe(completion);
    EXPECT_EQ(completion.wr_id, 1U);
    EXPECT_EQ(completion.opcode, IBV_WC_RECV);
    EXPECT_EQ(completion.byte_len, 48U);
    EXPECT_EQ(completion.qp_num, b_->qp->number());
    EXPECT_EQ(completion.src_qp, a_->qp->number());
    EXPECT_EQ(completion.slid, unknown_address);
    EXPECT_EQ(sender, a_->address.gid);

    const QueuePairAddress peer{
        .type = srd, .number = completion.src_qp, .qkey = options().qkey, .gid = sender};
    const AddressHandle reply(b_->pd, peer, {});
    ASSERT_TRUE(a_->qp->post_recv(a_->sge(1000, 64), 4));
    ASSERT_TRUE(b_->qp->post_send_to(b_->sge(0, 48), reply.destination(peer), {.wr_id = 5}));
    EXPECT_EQ(a_->expect(4).byte_len, 48U);
    b_->expect(5);
    EXPECT_TRUE(std::equal(a_->memory.begin(), a_->memory.begin() + 48, a_->memory.begin() + 1000));

    // The sender is known now: the completion has the number of its address handle.
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8), b(), {.wr_id = 6}));
    a_->expect(6);
    completion = next_with_sender(received, sender);
    EXPECT_EQ(completion.wr_id, 2U);
    EXPECT_EQ(completion.slid, reply.number());
    EXPECT_TRUE(sender.is_zero());
    b_->qp.reset();
}

TEST_F(Srd, CompletionQueueWithSendersReportsImmediateDataAndFailures) {
    const SrdCompletionQueue all(*context_);
    QueuePairOptions wanted = options();
    wanted.send_cq = wanted.recv_cq = all.queue();
    a_->qp.emplace(a_->prepare(wanted).activate());
    const AddressHandle to_itself(a_->pd, a_->address, {});
    const Destination itself = to_itself.destination(a_->address);
    Gid sender;
    testing::fill(std::span(a_->memory).first(8), 6);
    ASSERT_TRUE(a_->qp->post_recv(std::span<const ibv_sge>(), 1));
    ASSERT_TRUE(a_->qp->post_write_imm_to(a_->sge(0, 8), itself, a_->region.remote().at(64), 77,
                                          {.wr_id = 2}));
    for (int i = 0; i < 2; ++i) {
        const WorkCompletion completion = next_with_sender(all, sender);
        EXPECT_TRUE(succeeded(completion)) << describe(completion);
        EXPECT_EQ(completion.opcode,
                  completion.wr_id == 1 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RDMA_WRITE);
        if (completion.wr_id == 1) {
            EXPECT_EQ(completion.imm_data, htobe32(77));
            EXPECT_EQ(completion.byte_len, 8U);
            EXPECT_TRUE(
                std::equal(a_->memory.begin(), a_->memory.begin() + 8, a_->memory.begin() + 64));
            EXPECT_EQ(completion.wc_flags, unsigned{IBV_WC_WITH_IMM});
        }
    }
    Destination wrong = itself;
    wrong.qkey += 1;
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8), wrong, {.wr_id = 3}));
    const WorkCompletion failed = next_with_sender(all, sender);
    EXPECT_EQ(failed.wr_id, 3U);
    EXPECT_EQ(failed.status, IBV_WC_REM_INV_RD_REQ_ERR);
    EXPECT_EQ(failed.vendor_err, 9U);
    EXPECT_EQ(failed.qp_num, a_->qp->number());
    EXPECT_TRUE(sender.is_zero());
    a_->qp.reset();
}

TEST_F(Srd, CompletionQueueWithSendersKeepsItsChannel) {
    std::optional<CompletionChannel> channel(std::in_place, *context_);
    std::optional<SrdCompletionQueue> all;
    all.emplace(*context_, CompletionQueueOptions{.channel = &*channel});
    EXPECT_THAT(error_of([&] { channel->close(); }),
                fails_with("ibv_destroy_comp_channel", EBUSY, ""));
    channel.reset();
    WorkCompletion completion{};
    EXPECT_EQ(all->queue().wait({&completion, 1}, std::chrono::milliseconds(5)), 0U);
    EXPECT_NE(all->queue().native()->channel, nullptr);
}

TEST_F(Srd, CompletionQueueWithSendersNeedsADeviceThatReportsThem) {
    const auto refused = [&] {
        return error_of([&] { static_cast<void>(SrdCompletionQueue(*context_)); });
    };
    Context closed = Context::open_first();
    closed.close();
    EXPECT_THAT(error_of([&] { static_cast<void>(SrdCompletionQueue(closed)); }),
                fails_with("efadv_create_cq", EBADF, ""));
    testing::fail_next("ibv_create_cq_ex", EOPNOTSUPP);
    efadv_calls.removed_caps = EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
    EXPECT_THAT(refused(), fails_with("efadv_create_cq", EOPNOTSUPP,
                                      "soft0 does not report the GIDs of senders"));
    use_default_device();
    EXPECT_THAT(refused(), fails_with("efadv_create_cq", EOPNOTSUPP, "soft0 is not an EFA device"));
}

} // namespace
} // namespace rdmabuf
