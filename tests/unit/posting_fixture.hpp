// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/queue_pair.hpp>

#include "standin_fixture.hpp"

namespace rdmabuf::testing {

inline constexpr RemoteAddress remote{.address = 0x1122334455667788, .rkey = 0xaabbccdd};
inline constexpr std::array<ibv_sge, 2> local{ibv_sge{.addr = 0x1000, .length = 100, .lkey = 5},
                                              ibv_sge{.addr = 0x2000, .length = 200, .lkey = 6}};
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

/// For tests of what posting writes into work requests.
class PostingTest : public StandinTest {
  protected:
    Basics basics_;
    std::optional<QueuePair> qp_;

    QueuePair connect(const QueuePairOptions& options) {
        PreparedQueuePair prepared = QueuePair::prepare(basics_.pd, options);
        return options.type == QueuePairType::unreliable_datagram
                   ? std::move(prepared).activate()
                   : connect_to_itself(std::move(prepared));
    }
    [[nodiscard]] QueuePairOptions options() const {
        return {.send_cq = basics_.cq,
                .recv_cq = basics_.cq,
                .max_send_wr = 16,
                .max_recv_wr = 4,
                .max_send_sge = 2};
    }
    const QueuePair& qp() {
        if (!qp_) {
            qp_.emplace(connect(options()));
        }
        return *qp_;
    }
    /// The only request so far, which must carry the wr_id 42 and the flags.
    static const standin::Send& only(ibv_wr_opcode opcode, unsigned flags) {
        EXPECT_EQ(standin::record().sends.size(), 1U);
        const standin::Send& send = standin::record().sends.back();
        EXPECT_EQ(send.request.wr_id, 42U);
        EXPECT_EQ(send.request.opcode, opcode);
        EXPECT_EQ(send.request.send_flags, flags);
        EXPECT_EQ(send.request.next, nullptr);
        return send;
    }
    static void expect_rdma(const standin::Send& send) {
        EXPECT_EQ(send.request.wr.rdma.remote_addr, remote.address);
        EXPECT_EQ(send.request.wr.rdma.rkey, remote.rkey);
    }
    static void expect_atomic(const standin::Send& send, std::uint64_t compare_add,
                              std::uint64_t swap) {
        EXPECT_EQ(send.request.wr.atomic.remote_addr, remote.address);
        EXPECT_EQ(send.request.wr.atomic.rkey, remote.rkey);
        EXPECT_EQ(send.request.wr.atomic.compare_add, compare_add);
        EXPECT_EQ(send.request.wr.atomic.swap, swap);
        expect_same(send.entries, std::span(local).first(1));
    }
};

} // namespace rdmabuf::testing
