// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <chrono>
#include <semaphore>
#include <string_view>
#include <thread>

#include "fixture.hpp"
#include "thread_clock.hpp"
#include "waiting.hpp"

namespace nccl_net_test {
namespace {

using rdmabuf::testing::ThreadClock;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::Not;
using ::testing::NotNull;

class NcclNetConnecting : public NcclNet {
  protected:
    NcclNetConnecting() { EXPECT_EQ(load(), Result::success); }

    /// Expects that a connection was closed without a message whose acknowledgement it waits for.
    static void expect_no_close_message() {
        for (const rdmabuf::testing::Send& posted : rdmabuf::testing::record().sends) {
            EXPECT_EQ(posted.request.opcode, IBV_WR_SEND);
            EXPECT_EQ(posted.request.num_sge, 0);
        }
    }
};

TEST_F(NcclNetConnecting, DoesNotWaitForTheOtherEndAndLeavesNothingWhenItIsGivenUp) {
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    ASSERT_THAT(listener, NotNull());
    void* comm = &handle;
    EXPECT_EQ(net().accept(listener, comm), Result::success);
    EXPECT_THAT(comm, IsNull()) << "nobody has connected";
    for (int i = 0; i < 3; ++i) {
        comm = &handle;
        EXPECT_EQ(net().connect(0, handle, comm), Result::success);
        EXPECT_THAT(comm, IsNull()) << "nobody has accepted";
    }
    EXPECT_EQ(net().close_listen(listener), Result::success);
}

// NCCL polls without a time limit, and does other work meanwhile.
TEST_F(NcclNetConnecting, WaitsForHoursWhileOneEndIsNotPolled) {
    constexpr std::chrono::hours hour(1);
    const ThreadClock clock;
    Handle handle{};
    Pair pair;
    ASSERT_EQ(net().listen(0, handle, pair.listener), Result::success);
    const auto connect = [&] {
        if (pair.send == nullptr) {
            EXPECT_EQ(net().connect(0, handle, pair.send), Result::success);
        }
    };
    const auto accept = [&] {
        if (pair.receive == nullptr) {
            EXPECT_EQ(net().accept(pair.listener, pair.receive), Result::success);
        }
    };
    const std::size_t before = softverbs_live(SOFTVERBS_QP);
    connect();
    ThreadClock::advance(hour);
    connect();
    until([&] {
        connect();
        accept();
        return softverbs_live(SOFTVERBS_QP) == before + 1;
    });
    ThreadClock::advance(hour);
    accept();
    until([&] {
        connect();
        return softverbs_live(SOFTVERBS_QP) == before + 2;
    });
    ThreadClock::advance(hour);
    connect();
    until([&] {
        accept();
        connect();
        return pair.receive != nullptr && pair.send != nullptr;
    });
    EXPECT_EQ(net().close_send(pair.send), Result::success);
    EXPECT_EQ(net().close_receive(pair.receive), Result::success);
    EXPECT_EQ(net().close_listen(pair.listener), Result::success);
}

TEST_F(NcclNetConnecting, ToOneThatIsGoneFailsWithAReason) {
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    ASSERT_EQ(net().close_listen(listener), Result::success);
    Result result = Result::success;
    void* comm = nullptr;
    until([&] {
        result = net().connect(0, handle, comm);
        return result != Result::success;
    });
    EXPECT_EQ(result, Result::remote_error);
    EXPECT_THAT(comm, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: "));
}

TEST_F(NcclNetConnecting, ByBytesThatAreNoHandleFails) {
    Handle handle{};
    handle.fill(std::byte{0xff});
    void* comm = nullptr;
    EXPECT_EQ(net().connect(0, handle, comm), Result::system_error);
    EXPECT_THAT(comm, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("these bytes are not the handle of a listener"));
}

// A verbs call then fails with EINVAL, which is no error of NCCL.
TEST_F(NcclNetConnecting, ByAPortThatIsDownFailsWithAReason) {
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    Result connected = Result::success;
    Result accepted = Result::success;
    void* comm = nullptr;
    until([&] {
        if (connected == Result::success) {
            connected = net().connect(0, handle, comm);
        }
        if (accepted == Result::success) {
            accepted = net().accept(listener, comm);
        }
        return connected != Result::success && accepted != Result::success;
    });
    EXPECT_EQ(connected, Result::system_error);
    EXPECT_EQ(accepted, Result::system_error);
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: "));
    EXPECT_EQ(net().close_listen(listener), Result::success);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
}

TEST_F(NcclNetConnecting, ToADeviceThatThereIsNotFails) {
    Handle handle{};
    void* object = nullptr;
    EXPECT_EQ(net().listen(7, handle, object), Result::internal_error);
    EXPECT_EQ(net().connect(-1, handle, object), Result::system_error);
    EXPECT_THAT(object, IsNull());
}

// Creating and connecting queue pairs takes long.
TEST_F(NcclNetConnecting, DoesNotDelayAnotherThread) {
    const Pair pair = connect();
    std::binary_semaphore called(0);
    std::binary_semaphore goes_on(0);
    rdmabuf::testing::before_each_call([&](std::string_view verb) {
        if (verb.starts_with("ibv_create_qp") || verb == "ibv_modify_qp") {
            called.release();
            goes_on.acquire();
        }
    });
    std::atomic<bool> connected = false;
    std::thread connecting([&] {
        static_cast<void>(connect());
        connected = true;
    });
    unsigned calls = 0;
    EXPECT_TRUE(rdmabuf::testing::eventually([&] { return connected.load(); },
                                             [&] {
                                                 if (called.try_acquire()) {
                                                     Transfer transfer(net(), pair, {.length = 2},
                                                                       false);
                                                     run(transfer);
                                                     goes_on.release();
                                                     ++calls;
                                                 }
                                             }));
    connecting.join();
    rdmabuf::testing::forget_calls();
    EXPECT_EQ(calls, 8U) << "one creation and three changes of state at each end";
}

TEST_F(NcclNetConnecting, GivesOneListenerSeveralPeers) {
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    for (int peer = 0; peer < 3; ++peer) {
        Pair pair{.listener = listener};
        meet(pair, handle);
        EXPECT_EQ(net().close_send(pair.send), Result::success);
        EXPECT_EQ(net().close_receive(pair.receive), Result::success);
    }
    EXPECT_EQ(net().close_listen(listener), Result::success);
}

TEST_F(NcclNetConnecting, IsClosedByOneSignaledMessage) {
    const Pair pair = connect();
    rdmabuf::testing::forget_calls();
    close_send(pair);
    std::vector<unsigned> flags;
    for (const rdmabuf::testing::Send& posted : rdmabuf::testing::record().sends) {
        // The peer is in this process too. It ends its queue pair with a send without data, which
        // is flushed.
        if (posted.request.opcode == IBV_WR_SEND && posted.request.num_sge == 0) {
            continue;
        }
        if (posted.request.opcode == IBV_WR_SEND) {
            flags.push_back(posted.request.send_flags & unsigned{IBV_SEND_SIGNALED});
        } else {
            ADD_FAILURE() << "opcode " << posted.request.opcode;
        }
    }
    EXPECT_THAT(flags, ::testing::ElementsAre(unsigned{IBV_SEND_SIGNALED}));
}

TEST_F(NcclNetConnecting, IsClosedWithAWarningIfAMessageWasNotAcknowledged) {
    const Pair pair = connect();
    const Pair next = connect();
    const auto from = memory(pair.send, 64);
    const auto to = memory(pair.receive, 64);
    const Ticket received = receive(pair.receive, *to, 0, 64, 0);
    finish(send(pair.send, *from, 0, 8, 0));
    finish(received);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    // The advertisement of the receive was not signaled.
    close_receive(pair);
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: a connection was closed before"));
    // NCCL closes hundreds of connections, one after another.
    rdmabuf::testing::forget_calls();
    close_send(next);
    expect_no_close_message();
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
}

// NCCL has aborted the communicator, and the peer may be unreachable.
TEST_F(NcclNetConnecting, WithUnfinishedRequestsIsClosedWithoutWaitingForThePeer) {
    const Pair pair = connect();
    const auto to = memory(pair.receive, 64);
    static_cast<void>(receive(pair.receive, *to, 0, 64, 0));
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    rdmabuf::testing::forget_calls();
    close_receive(pair);
    expect_no_close_message();
    EXPECT_THAT(take_log(), Not(HasSubstr("W NET/rdmabuf")));
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
}

TEST_F(NcclNetConnecting, OfSeveralNcclCommunicatorsUsesAnEndpointForEach) {
    const std::size_t domains = softverbs_live(SOFTVERBS_PD);
    const Pair first = connect();
    const Pair second = connect();
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), domains + 1) << "they share the endpoint";
    EXPECT_NE(first.send, second.send);
    ASSERT_EQ(net().init(), Result::success);
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), domains + 2);
    EXPECT_EQ(net().close_listen(listener), Result::success);
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), domains + 1) << "the device of the second is closed";
    // NCCL has aborted the communicator, and forgets the listener and the attempt to connect.
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    void* comm = nullptr;
    ASSERT_EQ(net().connect(0, handle, comm), Result::success);
    net().finalize(true);
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), domains + 1) << "the first one continues";
    EXPECT_EQ(net().accept(listener, comm), Result::internal_error);
    EXPECT_THAT(take_log(), HasSubstr("finalize() has closed the listener"));
    EXPECT_EQ(net().close_listen(listener), Result::success);
    // NCCL 2.28.3 still uses the context for communicators that were split from the ended one.
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    Pair split{.listener = listener};
    meet(split, handle);
    EXPECT_EQ(net().close_send(split.send), Result::success);
    EXPECT_EQ(net().close_receive(split.receive), Result::success);
    EXPECT_EQ(net().close_listen(listener), Result::success);
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    net().finalize();
    EXPECT_THAT(memory(first.send, 1)->handle(), NotNull()) << "the first one continues";
    EXPECT_EQ(net().devices(), 1);
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), domains + 1);
    close(first);
    close(second);
    net().finalize();
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), domains) << "the last communicator has ended";
    ASSERT_EQ(net().init(), Result::success);
}

using NcclNetOpening = NcclNet;

TEST_F(NcclNetOpening, DoesNotDelayAnotherThread) {
    rdmabuf::testing::use_roce_devices({"one", "two"});
    ASSERT_EQ(load(), Result::success);
    static_cast<void>(connect());
    std::binary_semaphore opening(0);
    std::binary_semaphore goes_on(0);
    rdmabuf::testing::before_each_call([&](std::string_view verb) {
        if (verb == "ibv_create_srq") {
            opening.release();
            goes_on.acquire();
        }
    });
    std::thread listening([&] {
        Handle handle{};
        void* listener = nullptr;
        EXPECT_EQ(net().listen(1, handle, listener), Result::success);
        EXPECT_EQ(net().close_listen(listener), Result::success);
    });
    opening.acquire();
    static_cast<void>(connect());
    EXPECT_EQ(net().devices(), 2);
    goes_on.release();
    listening.join();
    rdmabuf::testing::forget_calls();
}

} // namespace
} // namespace nccl_net_test
