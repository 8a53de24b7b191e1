// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>

#include "verbs_test.hpp"

namespace softverbs_test {

inline constexpr int full_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                   IBV_ACCESS_MW_BIND;

/// A queue pair and its registered memory.
struct Side {
    std::vector<std::byte> memory;
    UniqueMr mr;
    UniqueCq cq;
    UniqueQp qp;

    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uint64_t>(memory.data() + offset);
    }
    void fill(std::byte value) { memory.assign(memory.size(), value); }
    [[nodiscard]] std::uint64_t number(std::size_t offset) const {
        std::uint64_t value = 0;
        std::memcpy(&value, memory.data() + offset, sizeof value);
        return value;
    }
    void set_number(std::size_t offset, std::uint64_t value) {
        std::memcpy(memory.data() + offset, &value, sizeof value);
    }
    [[nodiscard]] ibv_qp_state state() const {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        EXPECT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_STATE, &init), 0);
        return attr.qp_state;
    }
};

/// A request of queue pair `from`. Remote memory has the same offset as local memory.
struct Request {
    Request(const Side& from, const Side& to, ibv_wr_opcode opcode, std::uint64_t id,
            std::uint32_t length, std::size_t offset = 0)
        : sge{from.address(offset), length, from.mr->lkey} {
        wr.wr_id = id;
        wr.opcode = opcode;
        wr.num_sge = 1;
        wr.send_flags = IBV_SEND_SIGNALED;
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
            wr.wr.atomic.remote_addr = to.address(offset);
            wr.wr.atomic.rkey = to.mr->rkey;
            wr.wr.atomic.compare_add = 1;
        } else {
            wr.wr.rdma.remote_addr = to.address(offset);
            wr.wr.rdma.rkey = to.mr->rkey;
        }
    }
    ibv_sge sge;
    ibv_send_wr wr{};
};

/// Two queue pairs of soft0 in this process.
class PairTest : public VerbsTest {
  protected:
    static constexpr std::size_t memory_size = std::size_t{4} << 20U;

    void TearDown() override {
        softverbs_clear_faults();
        for (Side* const side : {&a, &b}) {
            side->qp.reset();
            side->cq.reset();
            side->mr.reset();
        }
        while (next_event()) {
        }
    }

    using Adjust = std::function<void(ibv_qp_init_attr_ex&)>;
    void make(ibv_qp_type type = IBV_QPT_RC, const Adjust& adjust = {}) {
        for (Side* const side : {&a, &b}) {
            side->qp.reset();
            side->memory.resize(memory_size);
            if (!side->mr) {
                side->mr = make_mr(side->memory.data(), memory_size, full_access);
                side->cq = make_cq(1024);
            }
            ibv_qp_init_attr_ex init = qp_attributes(type, side->cq.get());
            init.cap.max_send_wr = init.cap.max_recv_wr = 128;
            if (adjust) {
                adjust(init);
            }
            side->qp = make_qp(init);
        }
    }
    /// Like good_attributes(), but with the timeout of the test.
    [[nodiscard]] ibv_qp_attr pair_attributes(std::uint32_t peer) const {
        ibv_qp_attr attr = good_attributes(peer);
        attr.timeout = timeout;
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
        return attr;
    }
    using AdjustState = std::function<void(ibv_qp_attr&)>;
    void join(const AdjustState& adjust = {}) { join(a, b, adjust, adjust); }
    void join(const Side& one, const Side& other, const AdjustState& adjust_one = {},
              const AdjustState& adjust_other = {}) const {
        for (const Side* const side : {&one, &other}) {
            ibv_qp_attr attr = pair_attributes((side == &one ? other : one).qp->qp_num);
            if (const AdjustState& adjust = side == &one ? adjust_one : adjust_other) {
                adjust(attr);
            }
            to_init(side->qp.get());
            to_rtr(side->qp.get(), attr);
            to_rts(side->qp.get(), attr);
        }
    }
    void start(ibv_qp_type type = IBV_QPT_RC) {
        make(type);
        join();
    }
    /// Resets and reconnects both queue pairs.
    void restart(const AdjustState& adjust = {}) {
        for (const Side* const side : {&a, &b}) {
            ASSERT_EQ(modify(side->qp.get(), {}, IBV_QPS_RESET, 0), 0);
        }
        join(adjust);
    }

    /// Posts all requests in one call.
    static int post(const Side& from, std::vector<Request>& requests) {
        for (std::size_t i = 0; i < requests.size(); ++i) {
            requests[i].wr.sg_list = &requests[i].sge;
            requests[i].wr.next = i + 1 < requests.size() ? &requests[i + 1].wr : nullptr;
        }
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(from.qp.get(), &requests.front().wr, &bad);
    }
    static int post(const Side& from, Request request) {
        request.wr.sg_list = &request.sge;
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(from.qp.get(), &request.wr, &bad);
    }
    static void receive(const Side& at, std::uint64_t id, std::uint32_t length,
                        std::size_t offset = 0) {
        ibv_sge sge{at.address(offset), length, at.mr->lkey};
        receive(at, id, sge);
    }
    static void receive(const Side& at, std::uint64_t id, ibv_sge sge) {
        ibv_recv_wr wr{id, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_recv(at.qp.get(), &wr, &bad), 0);
    }
    /// Polls the next completion, and checks its wr_id and status.
    static ibv_wc expect(const Side& at, std::uint64_t id, ibv_wc_status status) {
        const std::vector<ibv_wc> found = poll(at.cq.get(), 1);
        if (found.empty()) {
            return {};
        }
        EXPECT_EQ(found[0].wr_id, id);
        EXPECT_EQ(found[0].status, status) << ibv_wc_status_str(found[0].status);
        EXPECT_EQ(found[0].qp_num, at.qp->qp_num);
        return found[0];
    }
    void expect_event(const Side& at, ibv_event_type type) const {
        const auto event = next_event();
        ASSERT_TRUE(event) << "no event";
        EXPECT_EQ(event->event_type, type) << ibv_event_type_str(event->event_type);
        EXPECT_EQ(event->element.qp, at.qp.get());
    }

    std::uint8_t timeout = 0; // none; 10: 4 ms
    Side a, b;
};

} // namespace softverbs_test
