// SPDX-License-Identifier: BSD-3-Clause
// Completion queues with extended completions, and the clock of a device.
#undef NDEBUG // The inline functions called in this file have their assertions in every build.
#include <chrono>

#include <rdmabuf/device_clock.hpp>
#include <rdmabuf/extended_completion_queue.hpp>
#include <rdmabuf/parent_domain.hpp>

#include "softverbs_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

class ExtendedQueue : public SoftverbsTest {
  protected:
    Context context_ = Context::open_first();

    static void complete(const CompletionQueue& cq, const ibv_wc& completion) {
        ASSERT_EQ(softverbs_complete(cq.native(), &completion), 0);
    }
    static void complete(const CompletionQueue& cq, std::uint64_t wr_id,
                         ibv_wc_status status = IBV_WC_SUCCESS) {
        ibv_wc completion{};
        completion.wr_id = wr_id;
        completion.status = status;
        complete(cq, completion);
    }
    auto refusal(const ExtendedCompletionQueueOptions& options) {
        return error_of([&] { ExtendedCompletionQueue(context_, options); });
    }
};

TEST_F(ExtendedQueue, IsMadeAsAsked) {
    const ProtectionDomain pd(context_);
    const ParentDomain domain(pd);
    const ExtendedCompletionQueue plain(context_);
    const ExtendedCompletionQueue single(context_, {.single_threaded = true});
    const ExtendedCompletionQueue all(
        context_, {.parent_domain = &domain, .single_threaded = true, .ignore_overrun = true});
    const auto& made = testing::record().extended_cqs;
    ASSERT_EQ(made.size(), 3U);
    EXPECT_EQ(made[0].comp_mask, 0U);
    EXPECT_EQ(made[1].comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS);
    EXPECT_EQ(made[1].flags, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    EXPECT_EQ(made[2].comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD);
    EXPECT_EQ(made[2].flags,
              IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
    EXPECT_EQ(made[2].parent_domain, domain.native());
}

TEST_F(ExtendedQueue, IsReadOldestFirst) {
    const ExtendedCompletionQueue cq(context_);
    for (std::uint64_t id = 1; id <= 3; ++id) {
        complete(cq, id);
    }
    std::uint64_t expected = 1;
    CompletionBatch batch = cq.start_poll();
    for (; batch; batch.next()) {
        EXPECT_EQ(batch.wr_id(), expected++);
        EXPECT_TRUE(batch.succeeded());
    }
    EXPECT_EQ(expected, 4U);
    EXPECT_TRUE(batch.error());
}

TEST_F(ExtendedQueue, ThatIsEmptyHasNoErrorAndIsPolledAgain) {
    const ExtendedCompletionQueue cq(context_);
    for (int i = 0; i < 3; ++i) {
        const CompletionBatch batch = cq.start_poll();
        EXPECT_FALSE(batch);
        EXPECT_EQ(batch.error(), Status());
    }
    complete(cq, 7);
    const CompletionBatch batch = cq.start_poll();
    EXPECT_TRUE(batch);
    EXPECT_EQ(batch.wr_id(), 7U);
}

TEST_F(ExtendedQueue, KeepsTheCompletionsThatABatchDoesNotRead) {
    const ExtendedCompletionQueue cq(context_);
    complete(cq, 1);
    complete(cq, 2);
    {
        const CompletionBatch batch = cq.start_poll();
        ASSERT_TRUE(batch);
        EXPECT_EQ(batch.wr_id(), 1U);
    }
    const CompletionBatch batch = cq.start_poll();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch.wr_id(), 2U);
}

TEST_F(ExtendedQueue, ThatIsBrokenSaysSo) {
    const ExtendedCompletionQueue cq(context_);
    complete(cq, 1);
    {
        CompletionBatch batch = cq.start_poll();
        ASSERT_TRUE(batch);
        ASSERT_EQ(softverbs_break_cq(cq.native()), 0);
        batch.next();
        EXPECT_FALSE(batch);
        EXPECT_EQ(batch.error(), Status(EIO));
    }
    const CompletionBatch batch = cq.start_poll();
    EXPECT_FALSE(batch);
    EXPECT_EQ(batch.error(), Status(EIO));
}

TEST_F(ExtendedQueue, DeliversTheFieldsOfAReceive) {
    const ExtendedCompletionQueue cq(context_);
    ibv_wc wc{};
    wc.wr_id = 5;
    wc.opcode = IBV_WC_RECV;
    wc.byte_len = 7;
    wc.imm_data = htobe32(0x01020304);
    wc.qp_num = 9;
    wc.src_qp = 10;
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.slid = 11;
    wc.sl = 12;
    wc.dlid_path_bits = 13;
    complete(cq, wc);
    const CompletionBatch batch = cq.start_poll();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch.status(), IBV_WC_SUCCESS);
    EXPECT_EQ(batch.opcode(), IBV_WC_RECV);
    EXPECT_EQ(batch.byte_length(), 7U);
    EXPECT_EQ(batch.immediate(), 0x01020304U);
    EXPECT_EQ(batch.invalidated_rkey(), htobe32(0x01020304));
    EXPECT_EQ(batch.queue_pair(), 9U);
    EXPECT_EQ(batch.source_queue_pair(), 10U);
    EXPECT_EQ(batch.flags(), unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(batch.source_lid(), 11U);
    EXPECT_EQ(batch.service_level(), 12U);
    const WorkCompletion copied = batch.work_completion();
    EXPECT_EQ(copied.wr_id, wc.wr_id);
    EXPECT_EQ(copied.opcode, wc.opcode);
    EXPECT_EQ(copied.byte_len, wc.byte_len);
    EXPECT_EQ(copied.imm_data, wc.imm_data);
    EXPECT_EQ(copied.qp_num, wc.qp_num);
    EXPECT_EQ(copied.src_qp, wc.src_qp);
    EXPECT_EQ(copied.wc_flags, wc.wc_flags);
    EXPECT_EQ(copied.slid, wc.slid);
    EXPECT_EQ(copied.sl, wc.sl);
    EXPECT_EQ(copied.dlid_path_bits, wc.dlid_path_bits);
}

TEST_F(ExtendedQueue, DescribesAFailureWithTheFieldsThatItHas) {
    const ExtendedCompletionQueue cq(context_, {.fields = CompletionFields::queue_pair});
    ibv_wc wc{};
    wc.wr_id = 7;
    wc.qp_num = 17;
    wc.status = IBV_WC_REM_ACCESS_ERR;
    wc.vendor_err = 0x88;
    complete(cq, wc);
    const CompletionBatch batch = cq.start_poll();
    ASSERT_TRUE(batch);
    EXPECT_FALSE(batch.succeeded());
    EXPECT_EQ(batch.vendor_error(), 0x88U);
    EXPECT_EQ(batch.queue_pair(), 17U);
    EXPECT_THAT(describe(batch.work_completion()),
                ::testing::StartsWith(
                    "wr_id 7 on QP 17: remote access error (vendor error 0x88): the remote"));
}

TEST_F(ExtendedQueue, StampsCompletionsByBothClocks) {
    const ExtendedCompletionQueue cq(
        context_, {.fields = CompletionFields::timestamp | CompletionFields::wallclock});
    const DeviceClock clock(context_);
    const std::uint64_t before = clock.now();
    const auto start = std::chrono::system_clock::now();
    complete(cq, 1);
    const std::uint64_t between = clock.now();
    const auto middle = std::chrono::system_clock::now();
    complete(cq, 2);
    const std::uint64_t after = clock.now();
    const auto end = std::chrono::system_clock::now();
    CompletionBatch batch = cq.start_poll();
    ASSERT_TRUE(batch);
    const std::uint64_t first = batch.timestamp();
    const WallclockTime first_wallclock = batch.wallclock();
    batch.next();
    ASSERT_TRUE(batch);
    EXPECT_LE(before, first);
    EXPECT_LE(first, between);
    EXPECT_LE(between, batch.timestamp());
    EXPECT_LE(batch.timestamp(), after);
    EXPECT_LE(start, first_wallclock);
    EXPECT_LE(first_wallclock, middle);
    EXPECT_LE(middle, batch.wallclock());
    EXPECT_LE(batch.wallclock(), end);
}

TEST_F(ExtendedQueue, IsAlsoPolledAndWaitedForAsAnOrdinaryOne) {
    const CompletionChannel channel(context_);
    const ExtendedCompletionQueue cq(context_, {.depth = 4, .channel = &channel});
    complete(cq, 1);
    complete(cq, 2);
    WorkCompletion completion{};
    EXPECT_EQ(cq.poll(completion), 1);
    EXPECT_EQ(completion.wr_id, 1U);
    EXPECT_EQ(cq.wait({&completion, 1}, 20s), 1U);
    EXPECT_EQ(completion.wr_id, 2U);
    EXPECT_EQ(cq.native()->cqe, 4);
    EXPECT_EQ(cq.native()->channel, channel.native());
}

TEST_F(ExtendedQueue, NeedsADepthAndAVectorThatTheDeviceHas) {
    for (const unsigned depth : {0U, 4097U}) {
        EXPECT_THAT(refusal({.depth = depth}),
                    fails_with("ibv_create_cq_ex", EINVAL,
                               "depth " + std::to_string(depth) +
                                   " of at most 4096, vector 0 of 4, fields "
                                   "byte_length|immediate|queue_pair|source on soft0"));
    }
    for (const int vector : {-1, 4}) {
        EXPECT_THAT(
            refusal({.vector = vector}),
            fails_with("ibv_create_cq_ex", EINVAL, "vector " + std::to_string(vector) + " of 4"));
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_CQ), 0U);
}

TEST_F(ExtendedQueue, WithTimestampsNeedsADeviceWithAClock) {
    testing::change_device([](ibv_device_attr_ex& attributes) { attributes.hca_core_clock = 0; });
    EXPECT_THAT(refusal({.fields = CompletionFields::timestamp, .single_threaded = true}),
                fails_with("ibv_create_cq_ex", EOPNOTSUPP,
                           "fields timestamp, single_threaded on soft0: its provider has no"));
}

TEST_F(ExtendedQueue, NeedsAProviderThatHasThem) {
    testing::remove_feature(SOFTVERBS_FEATURE_CREATE_CQ_EX);
    const Context context = Context::open_first();
    EXPECT_THAT(error_of([&] { const ExtendedCompletionQueue cq(context); }),
                fails_with("ibv_create_cq_ex", EOPNOTSUPP,
                           "its provider has no extended completion queues"));
}

TEST_F(ExtendedQueue, ThatWasAdoptedIsDestroyedAndOneThatWasBorrowedIsNot) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 4;
    ibv_cq_ex* const native = ibv_create_cq_ex(context_.native(), &attributes);
    {
        const ExtendedCompletionQueue borrowed = ExtendedCompletionQueue::borrow(native);
        EXPECT_EQ(borrowed.native_ex(), native);
        complete(borrowed, 3);
        EXPECT_EQ(borrowed.start_poll().wr_id(), 3U);
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_CQ), 1U);
    {
        const ExtendedCompletionQueue adopted = ExtendedCompletionQueue::adopt(context_, native);
        EXPECT_EQ(adopted.native(), ibv_cq_ex_to_cq(native));
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_CQ), 0U);
}

TEST_F(ExtendedQueue, NamesItsFields) {
    EXPECT_EQ(to_string(CompletionFields::none), "none");
    EXPECT_EQ(to_string(CompletionFields::standard), "byte_length|immediate|queue_pair|source");
    EXPECT_EQ(to_string(CompletionFields::wallclock | CompletionFields::tag_matching),
              "wallclock|tag_matching");
    EXPECT_EQ(to_string(static_cast<CompletionFields>(0x10001)), "byte_length|0x10000");
    EXPECT_FALSE(has(CompletionFields::standard, CompletionFields::timestamp));
}

// Sanitizers do not follow the child process of a death test.
#if !defined(RDMABUF_SANITIZED)

using ExtendedQueueDeathTest = ExtendedQueue;

TEST_F(ExtendedQueueDeathTest, DoesNotReadFieldsThatItWasNotCreatedWith) {
    const ExtendedCompletionQueue cq(context_, {.fields = CompletionFields::none});
    complete(cq, 1);
    const CompletionBatch batch = cq.start_poll();
    ASSERT_TRUE(batch);
    EXPECT_DEATH(static_cast<void>(batch.byte_length()), "byte_length is not in the fields");
    EXPECT_DEATH(static_cast<void>(batch.timestamp()), "timestamp is not in the fields");
}

TEST_F(ExtendedQueueDeathTest, IsNotPolledAfterClose) {
    ExtendedCompletionQueue closed(context_);
    closed.close();
    EXPECT_DEATH(static_cast<void>(closed.start_poll()), "CompletionQueue was closed");
}

#endif

// The clock of the device

class DeviceClockTest : public ExtendedQueue {
  protected:
    DeviceClock clock_{context_};

    /// The clock of a device with @p khz and @p mask.
    DeviceClock with(std::uint64_t khz, std::uint64_t mask) {
        testing::change_device([&](ibv_device_attr_ex& attributes) {
            attributes.hca_core_clock = khz;
            attributes.completion_timestamp_mask = mask;
        });
        return DeviceClock(context_);
    }
};

TEST_F(DeviceClockTest, ConvertsTimestampsToTheClockOfTheSystem) {
    const DeviceClock clock = with(156'250, 0x7fff'ffff'ffff'ffff);
    EXPECT_EQ(clock.frequency_khz(), 156'250U);
    EXPECT_EQ(clock.mask(), 0x7fff'ffff'ffff'ffffU);
    const auto before = std::chrono::system_clock::now();
    const std::uint64_t ticks = clock.now();
    const auto after = std::chrono::system_clock::now();
    // One tick is 6.4 ns.
    const std::chrono::nanoseconds tolerance = clock.uncertainty() + 1us;
    EXPECT_GE(clock.wallclock(ticks) + tolerance, before);
    EXPECT_LE(clock.wallclock(ticks) - tolerance, after);
    EXPECT_GT(clock.uncertainty(), 0ns);
}

TEST_F(DeviceClockTest, MeasuresTimesBetweenTimestampsThatWrap) {
    const DeviceClock clock = with(250'000, 0xffff);
    EXPECT_EQ(clock.between(100, 350), 1us);
    EXPECT_EQ(clock.between(350, 100), -1us);
    EXPECT_EQ(clock.between(0xffff, 249), 1us);
    EXPECT_EQ(clock.between(249, 0xffff), -1us);
    EXPECT_EQ(clock.between(7, 7), 0ns);
}

TEST_F(DeviceClockTest, MeasuresLongTimesWithoutOverflow) {
    const DeviceClock clock = with(1'000'000, ~std::uint64_t{0});
    const std::uint64_t century = std::uint64_t{3'155'760'000} * 1'000'000'000;
    EXPECT_EQ(clock.between(0, century), std::chrono::nanoseconds(century));
    EXPECT_EQ(clock.between(century, 0), -std::chrono::nanoseconds(century));
}

TEST_F(DeviceClockTest, SynchronizesAgain) {
    // The errors of both synchronizations, and rounding.
    auto tolerance = clock_.uncertainty() + 1us;
    const WallclockTime before = clock_.wallclock(0);
    testing::fail_next("ibv_query_rt_values_ex", EIO);
    EXPECT_THAT(error_of([&] { clock_.synchronize(); }),
                fails_with("ibv_query_rt_values_ex", EIO, ""));
    EXPECT_EQ(clock_.wallclock(0), before);
    clock_.synchronize();
    // Both clocks of softverbs run equally fast.
    tolerance += clock_.uncertainty();
    EXPECT_LE(std::chrono::abs(clock_.wallclock(0) - before), tolerance);
}

TEST_F(DeviceClockTest, NeedsADeviceThatReportsItsClock) {
    EXPECT_THAT(error_of([&] { with(0, 0xff); }),
                fails_with("ibv_query_device_ex", EOPNOTSUPP, "soft0 does not report its clock"));
    EXPECT_THAT(error_of([&] { with(1000, 0); }),
                fails_with("ibv_query_device_ex", EOPNOTSUPP, "soft0 does not report its clock"));
    testing::fail_next("ibv_query_rt_values_ex", EOPNOTSUPP);
    EXPECT_THAT(
        error_of([&] { with(1000, 0xff); }),
        fails_with("ibv_query_rt_values_ex", EOPNOTSUPP, "soft0 does not report its clock"));
}

} // namespace
} // namespace rdmabuf
