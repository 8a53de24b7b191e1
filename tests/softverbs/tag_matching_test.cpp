// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>

#include "pair_test.hpp"

namespace {

using namespace softverbs_test;

constexpr std::uint32_t max_wr = 16;
constexpr std::size_t data_offset = 65536; // of tagged buffers, in the memory of `b`
constexpr std::byte filling{0x5a};

/// A completion of the receiver, with the values of the extended completion queue.
struct Event {
    std::uint64_t id;
    ibv_wc_status status;
    ibv_wc_opcode opcode;
    unsigned flags;
    std::uint32_t length;
    ibv_wc_tm_info info;
};

/// `a` sends. `b` receives with a shared receive queue that matches tags.
class TagMatching : public PairTest {
  protected:
    void TearDown() override {
        a.qp.reset();
        b.qp.reset();
        srq_.reset();
        PairTest::TearDown();
    }
    static ibv_cq_ex* extended(const Side& side) {
        return reinterpret_cast<ibv_cq_ex*>(side.cq.get());
    }
    void prepare() {
        for (Side* const side : {&a, &b}) {
            side->memory.resize(memory_size);
            side->mr = make_mr(side->memory.data(), memory_size, full_access);
            ibv_cq_init_attr_ex init{};
            init.cqe = 256;
            init.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_TM_INFO;
            side->cq.reset(ibv_cq_ex_to_cq(ibv_create_cq_ex(context.get(), &init)));
            ASSERT_NE(side->cq, nullptr);
        }
        ibv_srq_init_attr_ex attributes = srq_attributes();
        srq_.reset(ibv_create_srq_ex(context.get(), &attributes));
        ASSERT_NE(srq_, nullptr) << errno;
    }
    ibv_srq_init_attr_ex srq_attributes() {
        ibv_srq_init_attr_ex attributes{};
        attributes.attr = {max_wr, 1, 0};
        attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                               IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
        attributes.srq_type = IBV_SRQT_TM;
        attributes.pd = pd.get();
        attributes.cq = b.cq.get();
        attributes.tm_cap = {4, 8};
        return attributes;
    }
    void start_pair(ibv_mtu mtu = IBV_MTU_1024) {
        prepare();
        make(IBV_QPT_RC, [this](ibv_qp_init_attr_ex& init) {
            if (init.recv_cq == b.cq.get()) {
                init.srq = srq_.get();
                init.cap.max_send_wr = init.cap.max_send_sge = 0;
            }
        });
        join([mtu](ibv_qp_attr& attr) { attr.path_mtu = mtu; });
        a.fill(std::byte{0x11});
        b.fill(filling);
        for (std::uint32_t i = 0; i < max_wr / 2; ++i) {
            post_buffer();
        }
    }
    void post_buffer(std::uint64_t id = 900) {
        ibv_sge sge{b.address(), 32768, b.mr->lkey};
        ibv_recv_wr wr{id, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_srq_recv(srq_.get(), &wr, &bad), 0);
    }
    int operate(ibv_ops_wr operation, std::uint32_t* handle = nullptr) {
        ibv_ops_wr* bad = nullptr;
        const int error = ibv_post_srq_ops(srq_.get(), &operation, &bad);
        EXPECT_EQ(bad, error == 0 ? nullptr : &operation);
        if (handle != nullptr) {
            *handle = operation.tm.handle;
        }
        return error;
    }
    int add(std::uint64_t tag, std::uint32_t length = 32768, std::uint32_t* handle = nullptr) {
        ibv_sge sge{b.address(data_offset), length, b.mr->lkey};
        ibv_ops_wr operation{};
        operation.wr_id = 100 + tag;
        operation.opcode = IBV_WR_TAG_ADD;
        operation.flags = IBV_OPS_SIGNALED;
        operation.tm.add = {200 + tag, &sge, 1, tag, 0xffff};
        return operate(operation, handle);
    }
    int remove(std::uint32_t handle) {
        ibv_ops_wr operation{};
        operation.wr_id = 300;
        operation.opcode = IBV_WR_TAG_DEL;
        operation.flags = IBV_OPS_SIGNALED;
        operation.tm.handle = handle;
        return operate(operation);
    }
    int synchronize(std::uint32_t handled) {
        ibv_ops_wr operation{};
        operation.wr_id = 301;
        operation.opcode = IBV_WR_TAG_SYNC;
        operation.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
        operation.tm.unexpected_cnt = handled;
        return operate(operation);
    }
    void send(ibv_tmh_op opcode, std::uint64_t tag, std::uint32_t length) {
        const ibv_tmh header{static_cast<std::uint8_t>(opcode), {}, htobe32(77), htobe64(tag)};
        std::memcpy(a.memory.data(), &header, sizeof header);
        ASSERT_EQ(post(a, {a, b, IBV_WR_SEND, tag, length}), 0);
    }
    void send_rendezvous(std::uint64_t tag, std::uint64_t address, std::uint32_t length) {
        const ibv_rvh header{htobe64(address), htobe32(a.mr->rkey), htobe32(length)};
        std::memcpy(a.memory.data() + sizeof(ibv_tmh), &header, sizeof header);
        send(IBV_TMH_RNDV, tag, sizeof(ibv_tmh) + sizeof header);
    }
    static Event next(const Side& at) {
        ibv_cq_ex* const cq = extended(at);
        ibv_poll_cq_attr attr{};
        if (!becomes_true([&] { return ibv_start_poll(cq, &attr) == 0; })) {
            ADD_FAILURE() << "no completion";
            return {};
        }
        Event event{cq->wr_id,
                    cq->status,
                    ibv_wc_read_opcode(cq),
                    ibv_wc_read_wc_flags(cq),
                    ibv_wc_read_byte_len(cq),
                    {}};
        ibv_wc_read_tm_info(cq, &event.info);
        ibv_end_poll(cq);
        return event;
    }
    static void expect_next(const Side& at, std::uint64_t id, ibv_wc_opcode opcode, unsigned flags,
                            std::uint32_t length = 0, std::uint64_t tag = 0) {
        const Event event = next(at);
        EXPECT_EQ(event.id, id);
        EXPECT_EQ(event.status, IBV_WC_SUCCESS) << ibv_wc_status_str(event.status);
        EXPECT_EQ(event.opcode, opcode);
        EXPECT_EQ(event.flags, flags);
        EXPECT_EQ(event.length, length);
        EXPECT_EQ(event.info.tag, tag);
        EXPECT_EQ(event.info.priv, tag == 0 ? 0U : 77U);
    }
    void add_and_wait(std::uint64_t tag) {
        ASSERT_EQ(add(tag), 0);
        expect_next(b, 100 + tag, IBV_WC_TM_ADD, 0);
    }
    /// Executes a rendezvous of a message at offset 8192. The FIN goes to offset 4096.
    void run_rendezvous(std::uint32_t length) {
        add_and_wait(5);
        receive(a, 500, 64, 4096);
        send_rendezvous(5, a.address(8192), length);
        expect_next(b, 205, IBV_WC_TM_RECV, IBV_WC_TM_MATCH, 0, 5);
        expect_next(a, 5, IBV_WC_SEND, 0);
        expect_next(a, 500, IBV_WC_RECV, 0, sizeof(ibv_tmh));
        expect_next(b, 205, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID, length);
    }
    static long filled(std::span<const std::byte> bytes, std::byte value) {
        return std::ranges::count(bytes, value);
    }

    UniqueSrq srq_;
};

constexpr unsigned complete_match = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;

TEST_F(TagMatching, IsReportedByTheDevice) {
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
    EXPECT_EQ(attr.tm_caps.flags, unsigned{IBV_TM_CAP_RC});
    EXPECT_EQ(attr.tm_caps.max_rndv_hdr_size, 64U);
    EXPECT_EQ(attr.tm_caps.max_num_tags, 127U);
    EXPECT_EQ(attr.tm_caps.max_ops, 16384U);
    EXPECT_EQ(attr.tm_caps.max_sge, 1U);
}

TEST_F(TagMatching, AQueueNeedsACompletionQueueAndTagCapacities) {
    prepare();
    const auto refused = [this](const std::function<void(ibv_srq_init_attr_ex&)>& change) {
        ibv_srq_init_attr_ex attributes = srq_attributes();
        change(attributes);
        errno = 0;
        const UniqueSrq made(ibv_create_srq_ex(context.get(), &attributes));
        return made == nullptr ? errno : 0;
    };
    EXPECT_EQ(refused([](auto& init) { init.comp_mask &= ~unsigned{IBV_SRQ_INIT_ATTR_CQ}; }),
              EINVAL);
    EXPECT_EQ(refused([](auto& init) { init.comp_mask &= ~unsigned{IBV_SRQ_INIT_ATTR_TM}; }),
              EINVAL);
    EXPECT_EQ(refused([](auto& init) { init.tm_cap.max_num_tags = 0; }), EINVAL);
    EXPECT_EQ(refused([](auto& init) { init.tm_cap.max_num_tags = 128; }), EINVAL);
    EXPECT_EQ(refused([](auto& init) { init.tm_cap.max_ops = 16385; }), EINVAL);
    EXPECT_EQ(refused([](auto&) {}), 0);
}

TEST_F(TagMatching, OnlyRcQueuePairsMayUseTheQueue) {
    prepare();
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_UD, b.cq.get());
    init.srq = srq_.get();
    errno = 0;
    EXPECT_EQ(UniqueQp(ibv_create_qp_ex(context.get(), &init)), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(TagMatching, AMatchingMessageGoesToItsBufferWithoutTheHeader) {
    start_pair();
    add_and_wait(5);
    add_and_wait(6);
    send(IBV_TMH_EAGER, 6, 116);
    expect_next(b, 206, IBV_WC_TM_RECV, complete_match, 100, 6);
    EXPECT_EQ(filled(std::span(b.memory).subspan(data_offset, 100), std::byte{0x11}), 100);
    EXPECT_EQ(b.memory[data_offset + 100], filling);
    EXPECT_EQ(filled(std::span(b.memory).first(data_offset), filling), long{data_offset});
}

TEST_F(TagMatching, AMessageOfSeveralPacketsMatches) {
    start_pair(IBV_MTU_256);
    for (const std::uint32_t length : {3000U, 30000U}) {
        b.fill(filling);
        add_and_wait(5);
        send(IBV_TMH_EAGER, 5, 16 + length);
        expect_next(b, 205, IBV_WC_TM_RECV, complete_match, length, 5);
        EXPECT_EQ(filled(std::span(b.memory).subspan(data_offset, length), std::byte{0x11}),
                  length);
        EXPECT_EQ(b.memory[data_offset + length], filling);
    }
}

TEST_F(TagMatching, TheMaskSelectsTheBitsThatAreCompared) {
    start_pair();
    add_and_wait(5);
    send(IBV_TMH_EAGER, 0xabcd'0005, 32);
    expect_next(b, 205, IBV_WC_TM_RECV, complete_match, 16, 0xabcd'0005);
}

TEST_F(TagMatching, AnUnexpectedMessageGoesToAReceiveRequestWithItsHeader) {
    start_pair();
    add_and_wait(5);
    send(IBV_TMH_EAGER, 9, 116);
    expect_next(b, 900, IBV_WC_TM_RECV, 0, 116);
    EXPECT_EQ(std::memcmp(b.memory.data(), a.memory.data(), 116), 0);
    EXPECT_EQ(b.memory[116], filling);
}

TEST_F(TagMatching, BuffersAddedBeforeSynchronizationMatchOnlyAfterIt) {
    start_pair();
    send(IBV_TMH_EAGER, 9, 32);
    expect_next(b, 900, IBV_WC_TM_RECV, 0, 32);
    ASSERT_EQ(add(5), 0);
    expect_next(b, 105, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
    send(IBV_TMH_EAGER, 5, 32); // the second unexpected message
    expect_next(b, 900, IBV_WC_TM_RECV, 0, 32);
    ASSERT_EQ(synchronize(2), 0);
    expect_next(b, 301, IBV_WC_TM_SYNC, 0);
    send(IBV_TMH_EAGER, 5, 32);
    expect_next(b, 205, IBV_WC_TM_RECV, complete_match, 16, 5);
}

TEST_F(TagMatching, AMessageWithoutTagIsNotCountedAsUnexpected) {
    start_pair();
    send(IBV_TMH_NO_TAG, 5, 32);
    expect_next(b, 900, IBV_WC_TM_NO_TAG, 0, 32);
    ASSERT_EQ(post(a, {a, b, IBV_WR_SEND, 1, 8}), 0); // shorter than a header
    expect_next(b, 900, IBV_WC_TM_NO_TAG, 0, 8);
    add_and_wait(5); // needs no synchronization
}

TEST_F(TagMatching, ARemovedBufferDoesNotMatchAndCanNotBeRemovedTwice) {
    start_pair();
    std::uint32_t handle = 0;
    ASSERT_EQ(add(5, 100, &handle), 0);
    expect_next(b, 105, IBV_WC_TM_ADD, 0);
    ASSERT_EQ(remove(handle), 0);
    expect_next(b, 300, IBV_WC_TM_DEL, 0);
    ASSERT_EQ(remove(handle), 0);
    const Event event = next(b);
    EXPECT_EQ(event.id, 300U);
    EXPECT_EQ(event.status, IBV_WC_TM_ERR);
    send(IBV_TMH_EAGER, 5, 32);
    expect_next(b, 900, IBV_WC_TM_RECV, 0, 32);
}

TEST_F(TagMatching, TheListAndTheOperationsAreLimited) {
    start_pair();
    for (std::uint64_t tag = 1; tag <= 4; ++tag) {
        ASSERT_EQ(add(tag), 0);
    }
    EXPECT_EQ(add(5), ENOMEM); // max_num_tags is 4
    for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(synchronize(0), 0);
    }
    EXPECT_EQ(synchronize(0), ENOMEM); // max_ops is 8, and nothing was polled
    static_cast<void>(next(b));
    EXPECT_EQ(synchronize(0), 0);
}

TEST_F(TagMatching, AMessageThatExceedsItsBufferIsALengthError) {
    start_pair();
    ASSERT_EQ(add(5, 64), 0);
    expect_next(b, 105, IBV_WC_TM_ADD, 0);
    send(IBV_TMH_EAGER, 5, 16 + 65);
    const Event event = next(b);
    EXPECT_EQ(event.id, 205U);
    EXPECT_EQ(event.status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(next(a).status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(b.state(), IBV_QPS_ERR);
}

TEST_F(TagMatching, ARendezvousReadsTheDataAndSendsFin) {
    start_pair();
    // Execute more rendezvous than the queue pair has slots for them.
    for (std::uint64_t i = 0; i < 100; ++i) {
        run_rendezvous(20000);
    }
    const ibv_tmh fin{IBV_TMH_FIN, {}, htobe32(77), htobe64(5)};
    EXPECT_EQ(std::memcmp(a.memory.data() + 4096, &fin, sizeof fin), 0);
    EXPECT_EQ(std::memcmp(b.memory.data() + data_offset, a.memory.data() + 8192, 20000), 0);
    EXPECT_EQ(b.memory[data_offset + 20000], filling);
}

TEST_F(TagMatching, ASmallRendezvousOfMlx5IsWrittenByTheDevice) {
    use("mlx5");
    prepare();
    make(IBV_QPT_RC, [this](ibv_qp_init_attr_ex& init) {
        init.sq_sig_all = 1; // so small reads have scatter-to-CQE
        if (init.recv_cq == b.cq.get()) {
            init.srq = srq_.get();
        }
    });
    join();
    a.fill(std::byte{0x11});
    b.fill(filling);
    post_buffer();
    run_rendezvous(32);
    EXPECT_EQ(filled(std::span(b.memory).subspan(data_offset, 32), std::byte{0x11}), 32);
}

TEST_F(TagMatching, ARendezvousWhoseReadFailsIsIncomplete) {
    start_pair();
    add_and_wait(5);
    send_rendezvous(5, a.address(memory_size), 20000); // not in the region
    expect_next(b, 205, IBV_WC_TM_RECV, IBV_WC_TM_MATCH, 0, 5);
    const Event event = next(b);
    EXPECT_EQ(event.id, 205U);
    EXPECT_EQ(event.status, IBV_WC_TM_RNDV_INCOMPLETE);
    EXPECT_EQ(b.state(), IBV_QPS_ERR);
}

TEST_F(TagMatching, OtherQueuesHaveNoTags) {
    make();
    ibv_srq_init_attr init{};
    init.attr = {4, 1, 0};
    const UniqueSrq plain(ibv_create_srq(pd.get(), &init));
    ASSERT_NE(plain, nullptr);
    ibv_ops_wr operation{};
    ibv_ops_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_srq_ops(plain.get(), &operation, &bad), EINVAL);
    EXPECT_EQ(bad, &operation);
}

TEST_F(TagMatching, AQueueMayBeDestroyedBeforeItsCompletionsArePolled) {
    prepare();
    ASSERT_EQ(synchronize(0), 0);
    srq_.reset();
    EXPECT_EQ(next(b).opcode, IBV_WC_TM_SYNC);
}

} // namespace
