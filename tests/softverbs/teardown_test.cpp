// SPDX-License-Identifier: BSD-3-Clause
//
// A NIC executes and acknowledges messages when they arrive.
// Therefore messages that have arrived must be executed and acknowledged before a queue pair is
// destroyed or enters the error state, and before a process exits.
#include <thread>

#include "sanitizers.hpp"
#include "temporary_directory.hpp"
#include "two_processes.hpp"

namespace softverbs_test {
namespace {

int to_error(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void post_unsignaled(const End& end, std::uint64_t id) {
    ibv_sge sge{end.base, 64, end.mr->lkey};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    done(ibv_post_send(end.qp, &wr, &bad), "ibv_post_send");
}

/// Posts three unsignaled requests. Only the first one requests an ACK; see ack_request_interval.
void post_three_unsignaled(const End& end) {
    for (std::uint64_t id = 1; id <= 3; ++id) {
        post_unsignaled(end, id);
    }
}

bool has_completion(const End& end) {
    ibv_wc wc{};
    return ibv_poll_cq(end.cq, 1, &wc) != 0;
}

class Teardown : public TwoProcesses {
  protected:
    /// The receiver gets three unsignaled messages and then calls @p leave. Checks that the sender
    /// has no request that is flushed in the error state.
    void run_with(const std::function<void(End&)>& leave) {
        run(
            [](End& sender) {
                sender.meet();
                post_three_unsignaled(sender);
                sender.meet();
                EXPECT_EQ(to_error(sender.qp), 0);
                EXPECT_FALSE(has_completion(sender)) << "an acknowledged request was flushed";
            },
            [&](End& receiver) {
                for (std::uint64_t id = 1; id <= 3; ++id) {
                    receiver.receive(id, id * 64, 64);
                }
                receiver.meet();
                for (std::uint64_t id = 1; id <= 3; ++id) {
                    receiver.expect(id);
                }
                leave(receiver);
                receiver.meet();
            });
    }
};

TEST_F(Teardown, ReceivedMessagesAreAcknowledgedBeforeTheQueuePairIsDestroyed) {
    run_with([](End& receiver) { EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0); });
}

TEST_F(Teardown, ReceivedMessagesAreAcknowledgedBeforeTheErrorState) {
    run_with([](End& receiver) { EXPECT_EQ(to_error(receiver.qp), 0); });
}

TEST_F(Teardown, ReceivedMessagesAreAcknowledgedWhileTheQueuePairStays) {
    run_with([](End&) {
        const ManualClock clock;
        settle();
    });
}

TEST_F(Teardown, ArrivedMessagesAreReceivedBeforeTheErrorState) {
    run(
        [](End& sender) {
            sender.meet();
            sender.post(IBV_WR_SEND, 1, 0, 64);
            sender.meet();
            sender.expect(1);
        },
        [](End& receiver) {
            receiver.receive(1, 0, 64);
            receiver.meet();
            receiver.meet();
            EXPECT_EQ(to_error(receiver.qp), 0);
            receiver.expect(1);
        });
}

TEST_F(Teardown, DatagramsArriveAfterTheirSenderHasExited) {
    type = IBV_QPT_UD;
    start(
        [](End& sender) {
            sender.meet();
            sender.post(IBV_WR_SEND, 1, 0, 64);
            sender.expect(1);
            std::exit(testing::Test::HasFailure() ? 1 : 0);
        },
        [](End& receiver) {
            receiver.receive(1, 0, 64 + 40);
            receiver.meet();
            receiver.expect(1);
            std::exit(testing::Test::HasFailure() ? 1 : 0);
        });
    finish();
}

TEST_F(Teardown, TwoThreadsThatExitLeaveNoFiles) {
    if (softverbs_test::address_sanitizer) {
        GTEST_SKIP() << "AddressSanitizer reports that glibc frees a list of exit handlers twice";
    }
    constexpr int processes = 20;
    const TemporaryDirectory directory;
    const std::string& path = directory.path();
    for (int i = 0; i < processes; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::setenv("SOFTVERBS_DIR", path.c_str(), 1);
            ibv_context* const context = open_first_device();
            ibv_pd* const pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
            ibv_qp_init_attr init{};
            init.send_cq = init.recv_cq =
                made(ibv_create_cq(context, 1, nullptr, nullptr, 0), "ibv_create_cq");
            init.cap = {1, 1, 1, 1, 0};
            init.qp_type = IBV_QPT_RC;
            made(ibv_create_qp(pd, &init), "ibv_create_qp");
            std::thread([] { std::exit(0); }).detach();
            std::exit(0);
        }
        int status = -1;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        for (const auto& entry : std::filesystem::directory_iterator(path)) {
            EXPECT_NE(entry.path().extension(), ".lock") << entry.path();
        }
    }
}

} // namespace
} // namespace softverbs_test
