// SPDX-License-Identifier: BSD-3-Clause
// Support for tests of SRD queue pairs of EFA, on the profile efa of softverbs.
#pragma once

#include <infiniband/efadv.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf::testing {

/// Changes the results of the functions of libefa that the library calls, and records their
/// arguments. srd_fixture.cpp defines these functions.
struct EfadvCalls {
    /// If not 0, efadv_query_device() fails with this errno.
    int query_error = 0;
    /// EFADV_DEVICE_ATTR_CAPS_* that efadv_query_device() does not report.
    std::uint32_t removed_caps = 0;
    /// The arguments of efadv_create_qp_ex().
    std::vector<ibv_qp_init_attr_ex> created;
    std::vector<efadv_qp_init_attr> created_extra;
};
inline EfadvCalls efadv_calls;

inline constexpr auto srd = QueuePairType::scalable_reliable_datagram;
inline constexpr std::uint32_t caps_rdma_write = 1U << 3U;
/// EFA has no remote atomics.
inline constexpr Access srd_access =
    Access::local_write | Access::remote_read | Access::remote_write;

/// One of two processes: a protection domain with memory, and a queue pair.
struct SrdProcess {
    explicit SrdProcess(const Context& context) : pd(context), cq(context) {}

    PreparedQueuePair prepare(const QueuePairOptions& options) {
        PreparedQueuePair prepared = QueuePair::prepare(pd, options);
        address = prepared.address();
        return prepared;
    }
    void start(QueuePairOptions options) {
        options.send_cq = options.recv_cq = cq;
        qp.emplace(prepare(options).activate());
    }
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const {
        return region.sge(offset, static_cast<std::uint32_t>(length));
    }
    [[nodiscard]] WorkCompletion next() const {
        WorkCompletion completion{};
        EXPECT_EQ(cq.wait({&completion, 1}, std::chrono::seconds(20)), 1U) << "no completion";
        return completion;
    }
    WorkCompletion expect(std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) const {
        const WorkCompletion completion = next();
        EXPECT_EQ(completion.wr_id, wr_id);
        EXPECT_EQ(completion.status, status) << describe(completion);
        return completion;
    }

    ProtectionDomain pd;
    CompletionQueue cq;
    std::vector<std::byte> memory = std::vector<std::byte>(1U << 20U);
    MemoryRegion region{pd, memory.data(), memory.size(), {.access = srd_access}};
    QueuePairAddress address;
    std::optional<QueuePair> qp;
};

/// Two processes on an EFA device. Their protection domains differ, so that the address handles of
/// one are not those of the other.
class Srd : public SoftverbsTest {
  public:
    Srd(const Srd&) = delete;
    Srd& operator=(const Srd&) = delete;
    ~Srd() override { efadv_calls = {}; }

  protected:
    Srd() {
        efadv_calls = {};
        EXPECT_EQ(softverbs_reset("efa", 1), 0);
        context_.emplace(Context::open_first());
        a_.emplace(*context_);
        b_.emplace(*context_);
    }

    [[nodiscard]] QueuePairOptions options() const {
        return {.send_cq = a_->cq, .recv_cq = a_->cq, .type = srd, .max_inline_data = 32};
    }
    /// Starts both queue pairs, and creates an address handle at a for b.
    void start() { start(options()); }
    void start(const QueuePairOptions& wanted) {
        a_->start(wanted);
        b_->start(wanted);
        to_b_.emplace(a_->pd, b_->address, AddressHandleOptions{});
    }
    /// Creates an address handle at b for a, which RDMA to b needs.
    void let_b_know_a() { to_a_.emplace(b_->pd, a_->address, AddressHandleOptions{}); }
    [[nodiscard]] Destination b() const { return to_b_->destination(b_->address); }
    [[nodiscard]] RemoteAddress memory_of_b(std::size_t offset = 0) const {
        return b_->region.remote().at(offset);
    }
    auto refusal(const QueuePairOptions& wanted) {
        return error_of([&] { static_cast<void>(QueuePair::prepare(a_->pd, wanted)); });
    }
    /// Checks that a failed request had no effect on the queue pairs.
    void expect_usable() const {
        EXPECT_EQ(a_->qp->state(), IBV_QPS_RTS);
        EXPECT_EQ(b_->qp->state(), IBV_QPS_RTS);
        ASSERT_TRUE(b_->qp->post_recv(b_->sge(0, 64), 90));
        ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 64), b(), {.wr_id = 91}));
        a_->expect(91);
        b_->expect(90);
    }
    void use_default_device() {
        b_.reset();
        a_.reset();
        context_.reset();
        use_roce_device();
        context_.emplace(Context::open_first());
        a_.emplace(*context_);
    }

    std::optional<Context> context_;
    std::optional<SrdProcess> a_, b_;
    std::optional<AddressHandle> to_b_, to_a_;
};

} // namespace rdmabuf::testing
