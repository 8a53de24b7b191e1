// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>

#include "softverbs_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf::testing {

inline constexpr std::uint32_t immediate = 0x01020304;
inline constexpr unsigned signaled = IBV_SEND_SIGNALED;

inline void expect_same(const std::vector<ibv_sge>& found, std::span<const ibv_sge> wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(found[i].addr, wanted[i].addr);
        EXPECT_EQ(found[i].length, wanted[i].length);
        EXPECT_EQ(found[i].lkey, wanted[i].lkey);
    }
}

/// For tests of what posting writes into work requests, and of what comes of them: a queue pair is
/// its own peer, and all its memory is in one region.
class PostingTest : public SoftverbsTest {
  protected:
    static constexpr std::size_t target = 1024;
    static constexpr std::size_t arrivals = 2048;
    static constexpr std::uint32_t total = 300; // in local_

    Basics basics_;
    CompletionQueue recv_cq_{basics_.context};
    alignas(8) std::array<std::byte, 4096> memory_{};
    MemoryRegion region_{basics_.pd, memory_.data(), memory_.size(), {.access = full_access}};
    /// What goes out, from two places.
    std::array<ibv_sge, 2> local_{region_.sge(0, 100), region_.sge(256, 200)};
    /// For the results of atomics.
    ibv_sge word_ = region_.sge(512, 8);
    RemoteAddress remote_ = region_.remote().at(target);
    /// What comes in, with room for a datagram's header.
    ibv_sge arrival_ = region_.sge(arrivals, 40 + total);
    std::optional<QueuePair> qp_;

    PostingTest() { fill(std::span(memory_).first(target), 1); }

    QueuePair connect(const QueuePairOptions& options) {
        PreparedQueuePair prepared = QueuePair::prepare(basics_.pd, options);
        return options.type == QueuePairType::unreliable_datagram
                   ? std::move(prepared).activate()
                   : connect_to_itself(std::move(prepared));
    }
    [[nodiscard]] QueuePairOptions options() const {
        return {.send_cq = basics_.cq,
                .recv_cq = recv_cq_,
                .max_send_wr = 16,
                .max_recv_wr = 8,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 512};
    }
    [[nodiscard]] QueuePairOptions datagrams() const {
        QueuePairOptions wanted = options();
        wanted.type = QueuePairType::unreliable_datagram;
        wanted.qkey = 0x456;
        return wanted;
    }
    const QueuePair& qp() {
        if (!qp_) {
            qp_.emplace(connect(options()));
        }
        return *qp_;
    }
    /// Lets the queue pair take @p count messages.
    void receive(std::size_t count) {
        for (std::uint64_t id = 1; id <= count; ++id) {
            ASSERT_TRUE(qp().post_recv(arrival_, id));
        }
    }

    // What was asked

    /// The only request so far, which must carry the wr_id 42 and the flags.
    static const Send& only(ibv_wr_opcode opcode, unsigned flags) {
        EXPECT_EQ(record().sends.size(), 1U);
        const Send& send = record().sends.back();
        EXPECT_EQ(send.request.wr_id, 42U);
        EXPECT_EQ(send.request.opcode, opcode);
        EXPECT_EQ(send.request.send_flags, flags);
        EXPECT_EQ(send.request.next, nullptr);
        return send;
    }
    void expect_rdma(const Send& send) const {
        EXPECT_EQ(send.request.wr.rdma.remote_addr, remote_.address);
        EXPECT_EQ(send.request.wr.rdma.rkey, remote_.rkey);
    }
    void expect_atomic(const Send& send, std::uint64_t compare_add, std::uint64_t swap) const {
        EXPECT_EQ(send.request.wr.atomic.remote_addr, remote_.address);
        EXPECT_EQ(send.request.wr.atomic.rkey, remote_.rkey);
        EXPECT_EQ(send.request.wr.atomic.compare_add, compare_add);
        EXPECT_EQ(send.request.wr.atomic.swap, swap);
        expect_same(send.entries, {&word_, 1});
    }

    // What came of it

    /// The next completion of a queue, which must be that of @p wr_id, and a success.
    static WorkCompletion completed(const CompletionQueue& cq, std::uint64_t wr_id,
                                    ibv_wc_opcode opcode) {
        WorkCompletion completion{};
        EXPECT_EQ(cq.wait({&completion, 1}, testing::time_limit), 1U) << "of " << wr_id;
        EXPECT_TRUE(succeeded(completion)) << describe(completion);
        EXPECT_EQ(completion.wr_id, wr_id);
        EXPECT_EQ(completion.opcode, opcode) << "of " << wr_id;
        return completion;
    }
    WorkCompletion sent(std::uint64_t wr_id, ibv_wc_opcode opcode) const {
        return completed(basics_.cq, wr_id, opcode);
    }
    WorkCompletion received(std::uint64_t wr_id, ibv_wc_opcode opcode = IBV_WC_RECV) const {
        return completed(recv_cq_, wr_id, opcode);
    }
    /// A send without a completion, a write, a read and a fetch-and-add, with the wr_ids 1 to 4.
    void expect_four_in_one_call() const {
        const auto& sends = record().sends;
        ASSERT_EQ(sends.size(), 4U);
        constexpr std::array opcodes{IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                     IBV_WR_ATOMIC_FETCH_AND_ADD};
        for (std::size_t i = 0; i < sends.size(); ++i) {
            EXPECT_EQ(sends[i].call, sends[0].call) << i;
            EXPECT_EQ(sends[i].request.wr_id, i + 1);
            EXPECT_EQ(sends[i].request.opcode, opcodes[i]);
            EXPECT_EQ(sends[i].request.send_flags, i == 0 ? 0U : signaled);
        }
        sent(2, IBV_WC_RDMA_WRITE);
        sent(3, IBV_WC_RDMA_READ);
        sent(4, IBV_WC_FETCH_ADD);
        received(1);
    }
    [[nodiscard]] std::vector<std::byte> bytes(std::size_t offset, std::size_t length) const {
        const auto part = std::span(memory_).subspan(offset, length);
        return {part.begin(), part.end()};
    }
    /// Those of local_, one entry after the other.
    [[nodiscard]] std::vector<std::byte> gathered() const {
        std::vector<std::byte> all = bytes(0, 100);
        const std::vector<std::byte> rest = bytes(256, 200);
        all.insert(all.end(), rest.begin(), rest.end());
        return all;
    }
    [[nodiscard]] std::uint64_t number_at(std::size_t offset) const {
        std::uint64_t number = 0;
        std::memcpy(&number, memory_.data() + offset, sizeof(number));
        return number;
    }
    void put_number(std::size_t offset, std::uint64_t number) {
        std::memcpy(memory_.data() + offset, &number, sizeof(number));
    }
};

} // namespace rdmabuf::testing
