// SPDX-License-Identifier: BSD-3-Clause
// Support for tests of the profile efa.
#pragma once

#include <endian.h>
#include <infiniband/efadv.h>

#include <algorithm>
#include <cstring>

#include "verbs_test.hpp"

namespace softverbs_test {

inline constexpr std::uint32_t srd_qkey = 0x1234;
inline constexpr int efa_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

inline int destroy_cq_ex(ibv_cq_ex* cq) {
    return ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}
using UniqueCqEx = std::unique_ptr<ibv_cq_ex, Destroyer<destroy_cq_ex>>;

/// Returns attributes for an SRD queue pair with all ibv_wr_*() functions that EFA has.
inline ibv_qp_init_attr_ex srd_attributes(ibv_pd* pd, ibv_cq* cq) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {64, 64, 2, 2, 32};
    init.qp_type = IBV_QPT_DRIVER;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE |
                          IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    return init;
}

inline ibv_qp* create_srd(ibv_context* context, ibv_qp_init_attr_ex init) {
    efadv_qp_init_attr extra{};
    extra.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
    return efadv_create_qp_ex(context, &init, &extra, sizeof extra);
}

/// Moves an SRD queue pair from RESET to RTS. Returns 0 or an errno.
/// @param rnr_retry  number of retries after RNR NAKs; negative: the attribute is not set
inline int start_srd(ibv_qp* qp, int rnr_retry = -1) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = srd_qkey;
    int error =
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    attr.qp_state = IBV_QPS_RTR;
    error = error != 0 ? error : ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    attr.qp_state = IBV_QPS_RTS;
    attr.rnr_retry = static_cast<std::uint8_t>(std::max(rnr_retry, 0));
    return error != 0 ? error
                      : ibv_modify_qp(
                            qp, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | (rnr_retry >= 0 ? IBV_QP_RNR_RETRY : 0));
}

inline ibv_ah* create_ah_to(ibv_pd* pd, const ibv_gid& gid) {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = gid;
    return ibv_create_ah(pd, &attributes);
}

/// The destination of a request, as a peer describes it.
struct SrdPeer {
    ibv_gid gid;
    std::uint32_t qp_number;
    std::uint32_t rkey;
    std::uint64_t memory;
};

/// An SRD queue pair with memory and a completion queue.
struct SrdEnd {
    void open(ibv_context* context, ibv_pd* pd, std::size_t size) {
        memory.assign(size, std::byte{});
        mr.reset(ibv_reg_mr(pd, memory.data(), size, efa_access));
        ASSERT_NE(mr, nullptr);
        ibv_cq_init_attr_ex attributes{};
        attributes.cqe = 256;
        attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
        efadv_cq_init_attr extra{};
        extra.wc_flags = EFADV_WC_EX_WITH_SGID;
        cq.reset(efadv_create_cq(context, &attributes, &extra, sizeof extra));
        ASSERT_NE(cq, nullptr);
        qp.reset(create_srd(context, srd_attributes(pd, native_cq())));
        ASSERT_NE(qp, nullptr);
    }
    void close() {
        qp.reset();
        cq.reset();
        mr.reset();
    }
    [[nodiscard]] ibv_cq* native_cq() const { return ibv_cq_ex_to_cq(cq.get()); }
    [[nodiscard]] ibv_qp_ex* extended() const { return ibv_qp_to_qp_ex(qp.get()); }
    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
    }
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length) const {
        return {address(offset), length, mr->lkey};
    }
    int receive(std::uint64_t id, ibv_sge entry) const {
        ibv_recv_wr wr{id, nullptr, &entry, 1};
        ibv_recv_wr* bad = nullptr;
        return ibv_post_recv(qp.get(), &wr, &bad);
    }
    /// Posts one request with ibv_wr_*(). @p start is called between ibv_wr_start() and the setting
    /// of the destination.
    template <class Start>
    int post(std::uint64_t id, ibv_ah* ah, const SrdPeer& peer, ibv_sge entry, Start start) const {
        ibv_qp_ex* const batch = extended();
        ibv_wr_start(batch);
        batch->wr_id = id;
        batch->wr_flags = IBV_SEND_SIGNALED;
        start(batch);
        ibv_wr_set_sge(batch, entry.lkey, entry.addr, entry.length);
        ibv_wr_set_ud_addr(batch, ah, peer.qp_number, srd_qkey);
        return ibv_wr_complete(batch);
    }
    int send(std::uint64_t id, ibv_ah* ah, const SrdPeer& peer, ibv_sge entry) const {
        return post(id, ah, peer, entry, [](ibv_qp_ex* batch) { ibv_wr_send(batch); });
    }
    int send_imm(std::uint64_t id, ibv_ah* ah, const SrdPeer& peer, ibv_sge entry,
                 std::uint32_t data) const {
        return post(id, ah, peer, entry,
                    [data](ibv_qp_ex* batch) { ibv_wr_send_imm(batch, data); });
    }
    /// Posts @p count messages in one batch. Message i consists of the @p length bytes at offset
    /// i * @p length, and has the wr_id i and the immediate data i. softverbs also sends delayed
    /// requests after 50 µs. This cannot happen between two requests of a batch, so the order in
    /// which the requests of a batch are sent depends only on the seed.
    int send_batch(std::uint32_t count, std::uint32_t length, ibv_ah* ah,
                   const SrdPeer& peer) const {
        ibv_qp_ex* const batch = extended();
        ibv_wr_start(batch);
        for (std::uint32_t i = 0; i < count; ++i) {
            batch->wr_id = i;
            batch->wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_send_imm(batch, htobe32(i));
            const ibv_sge entry = sge(std::size_t{i} * length, length);
            ibv_wr_set_sge(batch, entry.lkey, entry.addr, entry.length);
            ibv_wr_set_ud_addr(batch, ah, peer.qp_number, srd_qkey);
        }
        return ibv_wr_complete(batch);
    }
    int read(std::uint64_t id, ibv_ah* ah, const SrdPeer& peer, ibv_sge entry,
             std::uint64_t there = 0) const {
        return post(id, ah, peer, entry, [&](ibv_qp_ex* batch) {
            ibv_wr_rdma_read(batch, peer.rkey, peer.memory + there);
        });
    }
    int write(std::uint64_t id, ibv_ah* ah, const SrdPeer& peer, ibv_sge entry,
              std::uint64_t there = 0) const {
        return post(id, ah, peer, entry, [&](ibv_qp_ex* batch) {
            ibv_wr_rdma_write(batch, peer.rkey, peer.memory + there);
        });
    }
    int write_imm(std::uint64_t id, ibv_ah* ah, const SrdPeer& peer, ibv_sge entry,
                  std::uint32_t data) const {
        return post(id, ah, peer, entry, [&](ibv_qp_ex* batch) {
            ibv_wr_rdma_write_imm(batch, peer.rkey, peer.memory, data);
        });
    }
    /// Polls the next completion, and checks its wr_id and status.
    ibv_wc expect(std::uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS) const {
        ibv_wc wc{};
        EXPECT_TRUE(becomes_true([&] { return ibv_poll_cq(native_cq(), 1, &wc) == 1; }))
            << "no completion";
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.status, status) << ibv_wc_status_str(wc.status);
        return wc;
    }

    std::vector<std::byte> memory;
    UniqueMr mr;
    UniqueCqEx cq;
    UniqueQp qp;
};

/// Two SRD queue pairs of soft0 in this process.
class EfaTest : public VerbsTest {
  protected:
    static constexpr std::size_t memory_size = std::size_t{2} << 20U;

    void SetUp() override {
        VerbsTest::SetUp();
        use("efa");
        ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &gid), 0);
    }
    void TearDown() override {
        softverbs_clear_faults();
        softverbs_set_disorder("");
        a.close();
        b.close();
        ah.reset();
        b_ah.reset();
        b_pd.reset();
    }
    /// Makes two queue pairs in different protection domains, so that the address handles of one
    /// are unknown to the other. Starts both queue pairs.
    void start(int rnr_retry = -1) {
        b_pd.reset(ibv_alloc_pd(context.get()));
        a.open(context.get(), pd.get(), memory_size);
        b.open(context.get(), b_pd.get(), memory_size);
        ASSERT_EQ(start_srd(a.qp.get(), rnr_retry), 0);
        ASSERT_EQ(start_srd(b.qp.get(), rnr_retry), 0);
        ah.reset(create_ah_to(pd.get(), gid));
        ASSERT_NE(ah, nullptr);
        to_b = {gid, b.qp->qp_num, b.mr->rkey, b.address()};
    }
    /// Makes an address handle at b, which RDMA requests to b need.
    void let_b_know_a() {
        b_ah.reset(create_ah_to(b_pd.get(), gid));
        ASSERT_NE(b_ah, nullptr);
    }
    /// Checks that a failed request had no effect on the queue pair.
    void expect_usable() {
        EXPECT_EQ(state_of(a.qp.get()), IBV_QPS_RTS);
        EXPECT_EQ(state_of(b.qp.get()), IBV_QPS_RTS);
        ASSERT_EQ(b.receive(90, b.sge(0, 64)), 0);
        ASSERT_EQ(a.send(91, ah.get(), to_b, a.sge(0, 64)), 0);
        a.expect(91);
        b.expect(90);
    }
    ibv_gid gid{};
    UniquePd b_pd;
    SrdEnd a, b;
    UniqueAh ah, b_ah;
    SrdPeer to_b{};
};

} // namespace softverbs_test
