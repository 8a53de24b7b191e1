// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "manual_clock.hpp"

namespace softverbs_test {

template <auto Destroy>
struct Destroyer {
    template <class Object>
    void operator()(Object* object) const {
        EXPECT_EQ(Destroy(object), 0);
    }
};
using UniqueContext = std::unique_ptr<ibv_context, Destroyer<ibv_close_device>>;
using UniquePd = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using UniqueChannel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;
using UniqueCq = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using UniqueSrq = std::unique_ptr<ibv_srq, Destroyer<ibv_destroy_srq>>;
using UniqueQp = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;
using UniqueAh = std::unique_ptr<ibv_ah, Destroyer<ibv_destroy_ah>>;
using UniqueMr = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;

/// Opens soft0 for a test. Checks at the end that all objects are freed. Members of derived classes
/// are freed before, in the order of their destructors.
class VerbsTest : public testing::Test {
  public:
    ~VerbsTest() override {
        softverbs_clear_faults();
        pd.reset();
        context.reset();
        EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), 0U);
        EXPECT_EQ(softverbs_unacknowledged_events(), 0U);
        EXPECT_EQ(softverbs_violations() - violations_, expected_violations);
    }

  protected:
    void SetUp() override {
        use("default");
        violations_ = softverbs_violations();
    }

    /// Opens soft0 with a profile, and allocates a protection domain. Objects of the former device
    /// must have been destroyed before, except `pd` and `context`.
    void use(const char* profile) {
        pd.reset();
        context.reset();
        ASSERT_EQ(softverbs_reset(profile, 1), 0);
        ibv_device** const list = ibv_get_device_list(nullptr);
        ASSERT_NE(list, nullptr);
        ASSERT_NE(list[0], nullptr);
        context.reset(ibv_open_device(list[0]));
        ibv_free_device_list(list);
        ASSERT_NE(context, nullptr);
        pd.reset(ibv_alloc_pd(context.get()));
        ASSERT_NE(pd, nullptr);
    }
    [[nodiscard]] ibv_device_attr attributes() const {
        ibv_device_attr result{};
        EXPECT_EQ(ibv_query_device(context.get(), &result), 0);
        return result;
    }
    [[nodiscard]] UniqueCq make_cq(int entries, ibv_comp_channel* channel = nullptr) const {
        UniqueCq cq(ibv_create_cq(context.get(), entries, nullptr, channel, 0));
        EXPECT_NE(cq, nullptr);
        return cq;
    }
    /// Returns valid attributes for a queue pair without ibv_wr_*() functions. A test can change
    /// them.
    [[nodiscard]] ibv_qp_init_attr_ex qp_attributes(ibv_qp_type type, ibv_cq* cq) const {
        ibv_qp_init_attr_ex init{};
        init.send_cq = init.recv_cq = cq;
        init.cap.max_send_wr = init.cap.max_recv_wr = 16;
        init.cap.max_send_sge = init.cap.max_recv_sge = 2;
        init.cap.max_inline_data = 64;
        init.qp_type = type;
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        init.pd = pd.get();
        return init;
    }
    [[nodiscard]] UniqueQp make_qp(ibv_qp_init_attr_ex init) const {
        UniqueQp qp(ibv_create_qp_ex(context.get(), &init));
        EXPECT_NE(qp, nullptr);
        return qp;
    }
    [[nodiscard]] UniqueQp make_qp(ibv_qp_type type, ibv_cq* cq) const {
        return make_qp(qp_attributes(type, cq));
    }
    [[nodiscard]] UniqueMr make_mr(void* address, std::size_t length,
                                   int access = IBV_ACCESS_LOCAL_WRITE) const {
        UniqueMr mr(ibv_reg_mr(pd.get(), address, length, access));
        EXPECT_NE(mr, nullptr);
        return mr;
    }
    /// Returns an address vector with the address of soft0.
    [[nodiscard]] ibv_ah_attr own_address() const {
        ibv_port_attr port{};
        EXPECT_EQ(ibv_query_port(context.get(), 1, &port), 0);
        ibv_ah_attr address{};
        address.dlid = port.lid;
        address.port_num = 1;
        return address;
    }

    /// Returns valid values for all attributes that a transition may require.
    [[nodiscard]] ibv_qp_attr good_attributes(std::uint32_t peer = 0x123) const {
        ibv_qp_attr attr{};
        attr.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        attr.port_num = 1;
        attr.qkey = 0x11111111;
        attr.ah_attr = attr.alt_ah_attr = own_address();
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = peer;
        attr.rq_psn = attr.sq_psn = 0x654321;
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 1;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.alt_port_num = 1;
        attr.alt_timeout = 14;
        attr.path_mig_state = IBV_MIG_MIGRATED;
        return attr;
    }
    static int modify(ibv_qp* qp, ibv_qp_attr attr, ibv_qp_state to, int mask) {
        attr.qp_state = to;
        return ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE);
    }
    void to_init(ibv_qp* qp) const {
        const int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
        ASSERT_EQ(
            modify(qp, good_attributes(), IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), 0);
    }
    void to_rtr(ibv_qp* qp, const ibv_qp_attr& attr) const {
        int mask = 0;
        if (qp->qp_type != IBV_QPT_UD) {
            mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        }
        if (qp->qp_type == IBV_QPT_RC) {
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
        ASSERT_EQ(modify(qp, attr, IBV_QPS_RTR, mask), 0);
    }
    void to_rts(ibv_qp* qp, const ibv_qp_attr& attr) const {
        int mask = IBV_QP_SQ_PSN;
        if (qp->qp_type == IBV_QPT_RC) {
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        ASSERT_EQ(modify(qp, attr, IBV_QPS_RTS, mask), 0);
    }
    /// Moves a queue pair from RESET to RTS, connected to the queue pair @p peer.
    void connect(ibv_qp* qp, std::uint32_t peer) const {
        to_init(qp);
        to_rtr(qp, good_attributes(peer));
        to_rts(qp, good_attributes(peer));
    }
    /// Moves a queue pair from RESET to ERR, where posted requests are flushed.
    void to_error(ibv_qp* qp) const {
        to_init(qp);
        ASSERT_EQ(modify(qp, {}, IBV_QPS_ERR, 0), 0);
    }

    /// Polls until there are @p count completions. If the clock is stopped, moves it on.
    static std::vector<ibv_wc> poll(ibv_cq* cq, std::size_t count) {
        std::vector<ibv_wc> result(count);
        std::size_t there = 0;
        const auto poll_rest = [&] {
            const int taken =
                ibv_poll_cq(cq, static_cast<int>(count - there), result.data() + there);
            EXPECT_GE(taken, 0);
            there += static_cast<std::size_t>(std::max(taken, 0));
            return taken < 0 || there == count;
        };
        EXPECT_TRUE(becomes_true(poll_rest));
        EXPECT_EQ(there, count) << "completions";
        result.resize(there);
        return result;
    }
    static bool is_empty(ibv_cq* cq) {
        ibv_wc completion{};
        return ibv_poll_cq(cq, 1, &completion) == 0;
    }
    /// Returns the state that ibv_query_qp() reports. ibv_qp::state is only a copy.
    static ibv_qp_state state_of(ibv_qp* qp) {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
        return attr.qp_state;
    }
    /// Returns the next asynchronous event after acknowledging it. Returns no value if there is
    /// none.
    [[nodiscard]] std::optional<ibv_async_event> next_event() const {
        ibv_async_event event{};
        if (!is_readable(context->async_fd) || ibv_get_async_event(context.get(), &event) != 0) {
            return std::nullopt;
        }
        ibv_ack_async_event(&event);
        return event;
    }

    UniqueContext context;
    UniquePd pd;
    unsigned expected_violations = 0;

  private:
    unsigned violations_ = 0;
};

} // namespace softverbs_test
