// SPDX-License-Identifier: BSD-3-Clause
//
// Operations as NCCL's proxy thread performs them.
#include <tuple>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using namespace rdmabuf::testing;

class NcclNetProxy : public NcclNet {
  protected:
    NcclNetProxy() { EXPECT_EQ(load(), Result::success); }

    /// Returns the number of work requests since forget_calls(), without keepalive writes, which
    /// have no data.
    [[nodiscard]] static std::size_t work_requests() {
        return static_cast<std::size_t>(std::ranges::count_if(record().sends, [](const Send& send) {
            return send.request.opcode != IBV_WR_RDMA_WRITE || !send.entries.empty();
        }));
    }
};

/// The parameters are an Operation::Protocol and Operation::subs.
class NcclNetProtocols : public NcclNetProxy,
                         public ::testing::WithParamInterface<std::tuple<int, std::size_t>> {
  protected:
    [[nodiscard]] static Operation operation(std::size_t length, unsigned seed) {
        return {.protocol = static_cast<Operation::Protocol>(std::get<0>(GetParam())),
                .subs = std::get<1>(GetParam()),
                .length = std::get<1>(GetParam()) + length,
                .seed = seed};
    }
};

// Small all-reduces are short operations, which both ranks start at the same time.
TEST_P(NcclNetProtocols, CostTwoWorkRequestsForEachMessage) {
    const std::array<Pair, 2> pairs{connect(), connect()};
    std::size_t messages = 0;
    std::size_t posted = 0;
    for (unsigned round = 0; round < 12; ++round) {
        Transfer one(net(), pairs[0], operation(round % 3, round), false);
        Transfer other(net(), pairs[1], operation(round % 3, round), false);
        forget_calls();
        run(one, other);
        messages += 2 * operation(round % 3, round).messages();
        posted += work_requests();
    }
    EXPECT_GT(posted, messages) << "receives are advertised";
    EXPECT_LE(posted * 10, messages * 21) << "at most 2.1 for each message";
}

TEST_P(NcclNetProtocols, TransferGpuMemory) {
    const std::array<Pair, 2> pairs{connect(), connect()};
    Transfer one(net(), pairs[0], operation(12, 7), true);
    Transfer other(net(), pairs[1], operation(12, 8), true);
    run(one, other);
}

INSTANTIATE_TEST_SUITE_P(Operations, NcclNetProtocols,
                         ::testing::Combine(::testing::Values(0, 1, 2),
                                            ::testing::Values(1, 3, 8)));

// When NCCL aborts a communicator, it deregisters memory before it closes the connections.
TEST_F(NcclNetProxy, IsAbortedAtEachStep) {
    for (unsigned steps = 0; steps < 40; ++steps) {
        const Pair pair = connect();
        {
            Transfer transfer(net(), pair, {.subs = 2, .length = 12, .seed = steps},
                              steps % 2 == 1);
            for (unsigned step = 0; step < steps; ++step) {
                transfer.send.progress();
                transfer.receive.progress();
            }
            transfer.send.slots().deregister();
            transfer.receive.slots().deregister();
            if (steps % 4 < 2) {
                close_receive(pair);
            }
            close(pair);
        }
    }
}

} // namespace
} // namespace nccl_net_test
