// SPDX-License-Identifier: BSD-3-Clause
//
// The pattern of NCCL's progress thread: 8 receives are posted before their messages are sent.
#include <algorithm>
#include <cstdint>
#include <deque>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using namespace rdmabuf::testing;
using ::testing::ElementsAre;

class NcclNetPattern : public NcclNet {
  protected:
    /// NCCL_STEPS
    static constexpr std::size_t steps = 8;
    static constexpr std::size_t slot = 65536;

    NcclNetPattern() {
        EXPECT_EQ(load(), Result::success);
        pair_ = connect();
        from_ = memory(pair_.send, slot * steps);
        to_ = memory(pair_.receive, slot * steps);
        fill(from_->bytes(0, slot * steps), 1);
    }
    void TearDown() override {
        from_.reset();
        to_.reset();
        NcclNet::TearDown();
    }

    /// Sends messages of this size. Each receive is posted again for the whole slot when its
    /// message has arrived.
    void pass(std::size_t messages, std::size_t size) {
        for (std::size_t i = 0; i < messages; ++i) {
            const std::size_t at = sent_++ % steps * slot;
            const Ticket sent = send(pair_.send, *from_, at, size, 3);
            EXPECT_THAT(finish(sent), ElementsAre(static_cast<int>(size)));
            EXPECT_THAT(finish(receives_.front()), ElementsAre(static_cast<int>(size)));
            EXPECT_TRUE(std::ranges::equal(from_->bytes(at, size), to_->bytes(at, size)));
            receives_.pop_front();
            post();
        }
    }
    void post() {
        receives_.push_back(receive(pair_.receive, *to_, posted_++ % steps * slot, slot, 3));
    }

    /// The work requests since forget_calls(), without the keepalive, which writes 0 bytes.
    struct Posts {
        std::size_t sends = 0;
        std::size_t writes = 0;
        std::size_t others = 0;
    };
    [[nodiscard]] static Posts posts() {
        Posts posts;
        for (const Send& posted : record().sends) {
            if (posted.request.opcode == IBV_WR_RDMA_WRITE && posted.entries.empty()) {
                continue;
            }
            (posted.request.opcode == IBV_WR_SEND                  ? posts.sends
             : posted.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? posts.writes
                                                                   : posts.others) += 1;
        }
        return posts;
    }

    Pair pair_;
    std::unique_ptr<Memory> from_;
    std::unique_ptr<Memory> to_;
    std::deque<Ticket> receives_;
    std::size_t sent_ = 0;
    std::size_t posted_ = 0;
};

TEST_F(NcclNetPattern, CostsTwoWorkRequestsForEachMessage) {
    constexpr std::size_t messages = 50;
    for (std::size_t i = 0; i < steps; ++i) {
        post();
    }
    // Whole slots, shorter messages, and the messages of the LL protocol.
    for (const std::size_t size : {slot, slot - 4, std::size_t{16}}) {
        pass(steps, size);
        forget_calls();
        pass(messages, size);
        const Posts counted = posts();
        EXPECT_EQ(counted.writes, messages) << size << " bytes: one data write for each message";
        EXPECT_EQ(counted.sends, messages) << size << " bytes: one advertisement for each receive";
        EXPECT_EQ(counted.others, 0U) << size << " bytes";
    }
    // The remaining receives end with their messages.
    for (std::size_t i = 0; i < steps; ++i) {
        static_cast<void>(send(pair_.send, *from_, 0, 1, 3));
        finish(receives_[i]);
    }
}

} // namespace
} // namespace nccl_net_test
