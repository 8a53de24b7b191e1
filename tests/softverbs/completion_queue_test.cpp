// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fcntl.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <tuple>

#include "verbs_test.hpp"

namespace {

using namespace softverbs_test;

ibv_wc completion(std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.status = status;
    return wc;
}

constexpr std::uint64_t supported_fields = IBV_CREATE_CQ_SUP_WC_FLAGS;

class CompletionQueue : public VerbsTest {
  protected:
    void complete(ibv_cq* cq, std::uint64_t first, std::uint64_t count) {
        for (std::uint64_t id = first; id < first + count; ++id) {
            const ibv_wc wc = completion(id);
            ASSERT_EQ(softverbs_complete(cq, &wc), 0);
        }
    }
    static void expect(ibv_cq* cq, std::uint64_t first, std::uint64_t count) {
        for (std::uint64_t id = first; id < first + count; ++id) {
            ibv_wc wc{};
            ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 1);
            ASSERT_EQ(wc.wr_id, id);
        }
    }
    UniqueChannel make_channel() {
        UniqueChannel channel(ibv_create_comp_channel(context.get()));
        EXPECT_NE(channel, nullptr);
        return channel;
    }
    ibv_cq_ex* create_ex(const ibv_cq_init_attr_ex& attr) {
        ibv_cq_init_attr_ex copy = attr;
        errno = 0;
        return ibv_create_cq_ex(context.get(), &copy);
    }
    int error_of(const ibv_cq_init_attr_ex& attr) {
        ibv_cq_ex* cq = create_ex(attr);
        if (cq != nullptr) {
            EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
            return 0;
        }
        return errno;
    }
    /// Receives one event, checks its completion queue, and acknowledges it.
    static void take_event(ibv_comp_channel* channel, ibv_cq* expected) {
        ibv_cq* cq = nullptr;
        void* cq_context = nullptr;
        ASSERT_TRUE(is_readable(channel->fd));
        ASSERT_EQ(ibv_get_cq_event(channel, &cq, &cq_context), 0);
        EXPECT_EQ(cq, expected);
        ibv_ack_cq_events(cq, 1);
    }
};

TEST_F(CompletionQueue, hasOneEntryAtLeastAndAsManyAsTheDeviceSaysAtMost) {
    EXPECT_EQ(ibv_create_cq(context.get(), 0, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_create_cq(context.get(), -1, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_create_cq(context.get(), attributes().max_cqe + 1, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(make_cq(attributes().max_cqe)->cqe, attributes().max_cqe);
    EXPECT_EQ(make_cq(1)->cqe, 1);
}

TEST_F(CompletionQueue, refusesACompletionVectorThatIsNotThere) {
    const int vectors = context->num_comp_vectors;
    EXPECT_EQ(ibv_create_cq(context.get(), 1, nullptr, nullptr, vectors), nullptr);
    EXPECT_EQ(errno, EINVAL);
    const UniqueCq cq(ibv_create_cq(context.get(), 1, nullptr, nullptr, vectors - 1));
    EXPECT_NE(cq, nullptr);
}

TEST_F(CompletionQueue, refusesExtensionsItDoesNotHave) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.wc_flags = supported_fields;
    EXPECT_EQ(error_of(attr), 0);
    attr.wc_flags = 1ULL << 40;
    EXPECT_EQ(error_of(attr), EINVAL);
    attr.wc_flags = 0;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    EXPECT_EQ(error_of(attr), 0);
    attr.flags = 1U << 31;
    EXPECT_EQ(error_of(attr), EINVAL);
    attr.comp_mask = 0;
    EXPECT_EQ(error_of(attr), 0) << "flags that the mask does not name are ignored";
    attr.comp_mask = 1U << 31;
    EXPECT_EQ(error_of(attr), EINVAL);
}

TEST_F(CompletionQueue, givesCompletionsOutInOrderAndUnchanged) {
    const UniqueCq cq = make_cq(3);
    ibv_wc wc{};
    wc.wr_id = 7;
    wc.status = IBV_WC_REM_ACCESS_ERR;
    wc.opcode = IBV_WC_RDMA_READ;
    wc.vendor_err = 8;
    wc.byte_len = 9;
    wc.imm_data = 10;
    wc.qp_num = 11;
    wc.src_qp = 12;
    wc.wc_flags = IBV_WC_GRH;
    wc.slid = 13;
    wc.sl = 14;
    ASSERT_EQ(softverbs_complete(cq.get(), &wc), 0);
    ibv_wc taken{};
    ASSERT_EQ(ibv_poll_cq(cq.get(), 1, &taken), 1);
    const auto members = [](const ibv_wc& of) {
        return std::tuple(of.wr_id, of.status, of.opcode, of.vendor_err, of.byte_len, of.imm_data,
                          of.qp_num, of.src_qp, of.wc_flags, of.pkey_index, of.slid, of.sl,
                          of.dlid_path_bits);
    };
    EXPECT_EQ(members(taken), members(wc));
    for (std::uint64_t round = 0; round < 100; ++round) {
        complete(cq.get(), round * 3, 3);
        ibv_wc three[4];
        ASSERT_EQ(ibv_poll_cq(cq.get(), 4, three), 3);
        for (std::uint64_t i = 0; i < 3; ++i) {
            EXPECT_EQ(three[i].wr_id, round * 3 + i);
        }
    }
    EXPECT_TRUE(is_empty(cq.get()));
}

TEST_F(CompletionQueue, holdsThousandsAlthoughItStartsSmall) {
    const UniqueCq cq = make_cq(5000);
    complete(cq.get(), 0, 100);
    expect(cq.get(), 0, 100);
    complete(cq.get(), 100, 5000);
    expect(cq.get(), 100, 5000);
    EXPECT_TRUE(is_empty(cq.get()));
}

TEST_F(CompletionQueue, breaksWhenItOverrunsAndTakesItsQueuePairsAlong) {
    const UniqueCq cq = make_cq(3);
    const UniqueCq other = make_cq(3);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, other.get());
    init.recv_cq = cq.get();
    const UniqueQp victim = make_qp(init);
    const UniqueQp bystander = make_qp(IBV_QPT_RC, other.get());
    to_init(victim.get());
    to_init(bystander.get());
    complete(cq.get(), 0, 3);
    EXPECT_FALSE(next_event());
    complete(cq.get(), 3, 1);
    const auto first = next_event();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(first->element.cq, cq.get());
    const auto second = next_event();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->event_type, IBV_EVENT_QP_FATAL);
    EXPECT_EQ(second->element.qp, victim.get());
    EXPECT_FALSE(next_event());
    ibv_wc wc{};
    EXPECT_LT(ibv_poll_cq(cq.get(), 1, &wc), 0);
    EXPECT_EQ(state_of(victim.get()), IBV_QPS_ERR);
    EXPECT_EQ(state_of(bystander.get()), IBV_QPS_INIT);
    EXPECT_TRUE(is_empty(other.get()));
}

TEST_F(CompletionQueue, keepsTheNewestWhereOverrunsAreIgnored) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 3;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    const UniqueCq cq(ibv_cq_ex_to_cq(create_ex(attr)));
    ASSERT_NE(cq, nullptr);
    complete(cq.get(), 0, 10);
    expect(cq.get(), 7, 3);
    EXPECT_TRUE(is_empty(cq.get()));
}

TEST_F(CompletionQueue, isResizedWithWhatIsInIt) {
    const UniqueCq cq = make_cq(8);
    complete(cq.get(), 0, 5);
    expect(cq.get(), 0, 5);
    complete(cq.get(), 5, 8); // wraps around
    EXPECT_EQ(ibv_resize_cq(cq.get(), 7), EINVAL);
    EXPECT_EQ(cq->cqe, 8);
    EXPECT_EQ(ibv_resize_cq(cq.get(), 0), EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq.get(), attributes().max_cqe + 1), EINVAL);
    ASSERT_EQ(ibv_resize_cq(cq.get(), 700), 0);
    EXPECT_EQ(cq->cqe, 700);
    complete(cq.get(), 13, 600);
    expect(cq.get(), 5, 605);
    ASSERT_EQ(ibv_resize_cq(cq.get(), 3), 0);
    EXPECT_EQ(cq->cqe, 3);
    expect(cq.get(), 610, 3);
    complete(cq.get(), 1000, 3);
    expect(cq.get(), 1000, 3);
    EXPECT_TRUE(is_empty(cq.get()));
}

TEST_F(CompletionQueue, raisesOneEventForEachRequest) {
    const UniqueChannel channel = make_channel();
    const UniqueCq cq = make_cq(10, channel.get());
    complete(cq.get(), 0, 1);
    EXPECT_FALSE(is_readable(channel->fd)) << "nobody asked";
    expect(cq.get(), 0, 1);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    EXPECT_FALSE(is_readable(channel->fd)) << "what was polled is not waited for";
    EXPECT_EQ(softverbs_cq_armed(cq.get()), 1);
    complete(cq.get(), 1, 2);
    EXPECT_EQ(softverbs_cq_armed(cq.get()), 0);
    take_event(channel.get(), cq.get());
    EXPECT_FALSE(is_readable(channel->fd));
    complete(cq.get(), 3, 1);
    EXPECT_FALSE(is_readable(channel->fd));
}

TEST_F(CompletionQueue, raisesAnEventAtOnceForWhatWasNotPolled) {
    const UniqueChannel channel = make_channel();
    const UniqueCq cq = make_cq(10, channel.get());
    complete(cq.get(), 0, 2);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 1), 0);
    EXPECT_FALSE(is_readable(channel->fd)) << "they are not the solicited ones asked for";
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    take_event(channel.get(), cq.get());
    EXPECT_FALSE(is_readable(channel->fd)) << "one event for each request";
    EXPECT_EQ(softverbs_cq_armed(cq.get()), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    take_event(channel.get(), cq.get());
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    EXPECT_FALSE(is_readable(channel->fd)) << "both completions have been reported";
}

TEST_F(CompletionQueue, raisesEventsUntilAllIsPolledInSmallParts) {
    // perftest arms the queue after each event and then polls at most 16 completions.
    const UniqueChannel channel = make_channel();
    const UniqueCq cq = make_cq(100, channel.get());
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    complete(cq.get(), 0, 80);
    for (std::uint64_t polled = 0; polled < 80; polled += 16) {
        take_event(channel.get(), cq.get());
        ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
        expect(cq.get(), polled, 16);
    }
}

TEST_F(CompletionQueue, missesWhatCompletesJustBeforeTheRequest) {
    const UniqueChannel channel = make_channel();
    const UniqueCq cq = make_cq(10, channel.get());
    const ibv_wc early = completion(1);
    ASSERT_EQ(softverbs_complete_before_request(cq.get(), &early), 0);
    EXPECT_TRUE(is_empty(cq.get()));
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    EXPECT_FALSE(is_readable(channel->fd));
    expect(cq.get(), 1, 1);
    complete(cq.get(), 2, 1);
    take_event(channel.get(), cq.get());
}

TEST_F(CompletionQueue, askedForSolicitedEventsRaisesThemForErrorsToo) {
    const UniqueChannel channel = make_channel();
    const UniqueCq cq = make_cq(10, channel.get());
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 1), 0);
    complete(cq.get(), 0, 1);
    EXPECT_FALSE(is_readable(channel->fd));
    const ibv_wc failed = completion(1, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(softverbs_complete(cq.get(), &failed), 0);
    take_event(channel.get(), cq.get());
    expect(cq.get(), 0, 2);
    // If the queue is armed for all completions, a request for solicited ones does not change this.
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 1), 0);
    complete(cq.get(), 2, 1);
    take_event(channel.get(), cq.get());
}

TEST_F(CompletionQueue, askedForSolicitedEventsRaisesThemForMessagesThatSolicitThem) {
    const UniqueChannel channel = make_channel();
    const UniqueCq cq = make_cq(10, channel.get());
    const UniqueCq sends = make_cq(10);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
    init.send_cq = sends.get();
    const UniqueQp sender = make_qp(init);
    const UniqueQp receiver = make_qp(init);
    connect(sender.get(), receiver->qp_num);
    connect(receiver.get(), sender->qp_num);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 1), 0);
    for (const unsigned flag : {0U, unsigned{IBV_SEND_SOLICITED}}) {
        ibv_recv_wr receive{};
        ibv_recv_wr* bad_receive = nullptr;
        ASSERT_EQ(ibv_post_recv(receiver.get(), &receive, &bad_receive), 0);
        ibv_send_wr send{};
        send.opcode = IBV_WR_SEND;
        send.send_flags = flag | IBV_SEND_SIGNALED;
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(sender.get(), &send, &bad), 0);
        EXPECT_EQ(poll(sends.get(), 1).size(), 1U);
        EXPECT_EQ(is_readable(channel->fd), flag != 0);
    }
    take_event(channel.get(), cq.get());
}

TEST_F(CompletionQueue, wakesAThreadThatWaits) {
    const UniqueChannel channel = make_channel();
    int tag = 0;
    const UniqueCq cq(ibv_create_cq(context.get(), 4, &tag, channel.get(), 0));
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    std::jthread waiter([&] {
        ibv_cq* from = nullptr;
        void* cq_context = nullptr;
        EXPECT_EQ(ibv_get_cq_event(channel.get(), &from, &cq_context), 0);
        EXPECT_EQ(from, cq.get());
        EXPECT_EQ(cq_context, &tag);
        ibv_ack_cq_events(from, 1);
    });
    complete(cq.get(), 0, 1);
}

TEST_F(CompletionQueue, hasNoEventForAnImpatientReader) {
    const UniqueChannel channel = make_channel();
    ASSERT_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel.get(), &cq, &cq_context), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST_F(CompletionQueue, takesEventsAlongThatNobodyTook) {
    const UniqueChannel channel = make_channel();
    UniqueCq cq = make_cq(1, channel.get());
    const UniqueCq other = make_cq(1, channel.get());
    for (ibv_cq* each : {cq.get(), other.get()}) {
        ASSERT_EQ(ibv_req_notify_cq(each, 0), 0);
        complete(each, 0, 1);
    }
    complete(cq.get(), 0, 1); // overruns: an asynchronous event
    EXPECT_TRUE(is_readable(context->async_fd));
    cq.reset();
    EXPECT_FALSE(is_readable(context->async_fd));
    take_event(channel.get(), other.get());
    EXPECT_FALSE(is_readable(channel->fd));
}

TEST_F(CompletionQueue, holdsItsChannelAndIsHeldByItsQueuePairs) {
    UniqueChannel channel = make_channel();
    UniqueCq cq = make_cq(1, channel.get());
    EXPECT_EQ(ibv_destroy_comp_channel(channel.get()), EBUSY);
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    EXPECT_EQ(ibv_destroy_cq(cq.get()), EBUSY);
    expected_violations = 2;
}

TEST_F(CompletionQueue, isPolledByTheExtendedInterface) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.wc_flags = supported_fields;
    ibv_cq_ex* cq = create_ex(attr);
    ASSERT_NE(cq, nullptr);
    const UniqueCq owner(ibv_cq_ex_to_cq(cq));
    ibv_poll_cq_attr poll_attr{};
    EXPECT_EQ(ibv_start_poll(cq, &poll_attr), ENOENT);
    ibv_wc wc = completion(5, IBV_WC_LOC_LEN_ERR);
    wc.opcode = IBV_WC_RECV;
    wc.vendor_err = 6;
    wc.byte_len = 7;
    wc.imm_data = 8;
    wc.qp_num = 9;
    wc.src_qp = 10;
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.slid = 11;
    wc.sl = 12;
    wc.dlid_path_bits = 13;
    ASSERT_EQ(softverbs_complete(owner.get(), &wc), 0);
    complete(owner.get(), 100, 1);
    ASSERT_EQ(ibv_start_poll(cq, &poll_attr), 0);
    EXPECT_EQ(cq->wr_id, 5U);
    EXPECT_EQ(cq->status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_vendor_err(cq), 6U);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 7U);
    EXPECT_EQ(ibv_wc_read_imm_data(cq), 8U);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), 9U);
    EXPECT_EQ(ibv_wc_read_src_qp(cq), 10U);
    EXPECT_EQ(ibv_wc_read_wc_flags(cq), unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(ibv_wc_read_slid(cq), 11U);
    EXPECT_EQ(ibv_wc_read_sl(cq), 12U);
    EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 13U);
    const std::uint64_t time = ibv_wc_read_completion_ts(cq);
    EXPECT_GT(time, 0U);
    EXPECT_GT(ibv_wc_read_completion_wallclock_ns(cq), 1'600'000'000'000'000'000U);
    ASSERT_EQ(ibv_next_poll(cq), 0);
    EXPECT_EQ(cq->wr_id, 100U);
    EXPECT_GE(ibv_wc_read_completion_ts(cq), time);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    poll_attr.comp_mask = 1;
    EXPECT_EQ(ibv_start_poll(cq, &poll_attr), EINVAL);
    poll_attr.comp_mask = 0;
    ASSERT_EQ(softverbs_break_cq(owner.get()), 0);
    EXPECT_EQ(ibv_start_poll(cq, &poll_attr), EIO);
    EXPECT_TRUE(next_event());
}

TEST_F(CompletionQueue, isPolledByOneThreadAtATime) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 2000;
    ibv_cq_ex* cq = create_ex(attr);
    ASSERT_NE(cq, nullptr);
    const UniqueCq owner(ibv_cq_ex_to_cq(cq));
    complete(owner.get(), 0, 2000);
    std::atomic<std::uint64_t> sum = 0;
    std::atomic<int> inside = 0;
    std::barrier start(2);
    const auto take_all = [&] {
        ibv_poll_cq_attr poll_attr{};
        start.arrive_and_wait();
        while (ibv_start_poll(cq, &poll_attr) == 0) {
            EXPECT_EQ(++inside, 1);
            do {
                sum += cq->wr_id;
                std::this_thread::yield();
            } while (cq->wr_id % 5 != 0 && ibv_next_poll(cq) == 0);
            --inside;
            ibv_end_poll(cq);
        }
    };
    {
        const std::jthread one(take_all);
        const std::jthread two(take_all);
    }
    EXPECT_EQ(sum, 1999U * 2000 / 2);
}

TEST_F(CompletionQueue, hasNoFunctionsForFieldsThatWereNotRequested) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.wc_flags = IBV_WC_EX_WITH_QP_NUM;
    ibv_cq_ex* cq = create_ex(attr);
    ASSERT_NE(cq, nullptr);
    const UniqueCq owner(ibv_cq_ex_to_cq(cq));
    EXPECT_NE(cq->read_opcode, nullptr);
    EXPECT_NE(cq->read_vendor_err, nullptr);
    EXPECT_NE(cq->read_wc_flags, nullptr);
    EXPECT_NE(cq->read_qp_num, nullptr);
    EXPECT_EQ(cq->read_byte_len, nullptr);
    EXPECT_EQ(cq->read_imm_data, nullptr);
    EXPECT_EQ(cq->read_src_qp, nullptr);
    EXPECT_EQ(cq->read_slid, nullptr);
    EXPECT_EQ(cq->read_sl, nullptr);
    EXPECT_EQ(cq->read_dlid_path_bits, nullptr);
    EXPECT_EQ(cq->read_completion_ts, nullptr);
    EXPECT_EQ(cq->read_cvlan, nullptr);
    EXPECT_EQ(cq->read_flow_tag, nullptr);
    EXPECT_EQ(cq->read_tm_info, nullptr);
    EXPECT_EQ(cq->read_completion_wallclock_ns, nullptr);
}

TEST_F(CompletionQueue, isStampedByTheClockOfTheDevice) {
    constexpr std::uint64_t khz = 156'250;
    ibv_device_attr_ex device{};
    ASSERT_EQ(softverbs_get_device_attr(0, &device), 0);
    device.hca_core_clock = khz;
    device.completion_timestamp_mask = 0xffff'ffff'ffff;
    ASSERT_EQ(softverbs_set_device_attr(0, &device), 0);
    const auto read_clock = [&] {
        ibv_values_ex values{IBV_VALUES_MASK_RAW_CLOCK | IBV_VALUES_MASK_RESERVED, {}};
        EXPECT_EQ(ibv_query_rt_values_ex(context.get(), &values), 0);
        EXPECT_EQ(values.comp_mask, std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK});
        return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
    };
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    ibv_cq_ex* cq = create_ex(attr);
    ASSERT_NE(cq, nullptr);
    const UniqueCq owner(ibv_cq_ex_to_cq(cq));
    const ManualClock clock;
    const std::uint64_t before = read_clock();
    EXPECT_GT(before, 0U);
    complete(owner.get(), 0, 1);
    ManualClock::advance(std::chrono::milliseconds(20));
    EXPECT_EQ(read_clock() - before, 20 * khz);
    ibv_poll_cq_attr poll_attr{};
    ASSERT_EQ(ibv_start_poll(cq, &poll_attr), 0);
    EXPECT_EQ(ibv_wc_read_completion_ts(cq), before);
    ibv_end_poll(cq);
    device.completion_timestamp_mask = 0xff;
    ASSERT_EQ(softverbs_set_device_attr(0, &device), 0);
    EXPECT_LE(read_clock(), 0xffU);
}

TEST_F(CompletionQueue, hasNoTimestampsIfTheDeviceHasNoClock) {
    ibv_device_attr_ex device{};
    ASSERT_EQ(softverbs_get_device_attr(0, &device), 0);
    device.hca_core_clock = 0;
    ASSERT_EQ(softverbs_set_device_attr(0, &device), 0);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    for (const auto flag :
         {IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK}) {
        attr.wc_flags = flag;
        EXPECT_EQ(error_of(attr), EOPNOTSUPP);
    }
    ibv_values_ex values{IBV_VALUES_MASK_RAW_CLOCK, {}};
    EXPECT_EQ(ibv_query_rt_values_ex(context.get(), &values), EOPNOTSUPP);
}

TEST_F(CompletionQueue, thatIsSingleThreadedCountsASecondPollAtTheSameTime) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    ibv_cq_ex* cq = create_ex(attr);
    ASSERT_NE(cq, nullptr);
    const UniqueCq owner(ibv_cq_ex_to_cq(cq));
    complete(owner.get(), 0, 3);
    const unsigned violations = softverbs_violations();
    ibv_poll_cq_attr poll_attr{};
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(ibv_start_poll(cq, &poll_attr), 0);
        ibv_end_poll(cq);
    }
    EXPECT_EQ(softverbs_violations(), violations);
    ASSERT_EQ(ibv_start_poll(cq, &poll_attr), 0);
    EXPECT_EQ(ibv_start_poll(cq, &poll_attr), ENOENT);
    EXPECT_EQ(softverbs_violations(), violations + 1);
    expected_violations = 1;
}

} // namespace
