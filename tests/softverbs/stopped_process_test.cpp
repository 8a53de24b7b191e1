// SPDX-License-Identifier: BSD-3-Clause
// Traffic with a process that is stopped for some time. Its peers must not assume that it has
// ended. When it continues, it must not process outdated requests.
#include "two_processes.hpp"

namespace softverbs_test {
namespace {

TEST_F(TwoProcesses, ATargetThatIsBusyForLongerThanAllRetriesIsNotGone) {
    timeout = 10; // twice 4 ms
    for (const char* const method : {"process_vm", "none"}) {
        pull = method;
        run(
            [](End& end) {
                const ManualClock clock;
                for (std::uint64_t id = 0; id < 60; ++id) {
                    const bool is_busy = id % 20 == 10;
                    end.tell(is_busy ? 'b' : 'n');
                    static_cast<void>(end.hear<char>());
                    end.post(id % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, id, 0, one_mib, 0);
                    if (is_busy) {
                        ManualClock::advance(std::chrono::seconds(1));
                        ibv_wc wc{};
                        ASSERT_EQ(ibv_poll_cq(end.cq, 1, &wc), 0);
                        end.tell('g');
                    }
                    end.expect(id);
                }
            },
            [](End& end) {
                for (int request = 0; request < 60; ++request) {
                    if (end.hear<char>() == 'b') {
                        const ManualClock clock; // this process executes nothing
                        end.tell('r');
                        static_cast<void>(end.hear<char>());
                    } else {
                        end.tell('r');
                    }
                }
            });
    }
}

TEST_F(TwoProcesses, RequestsToAStoppedTargetEndByTheTimeoutOfTheirQueuePair) {
    struct Case {
        ibv_wr_opcode opcode;
        std::uint32_t length;
        unsigned requests;
    };
    // The last ones do not fit into the ring.
    for (const Case& one :
         {Case{IBV_WR_SEND, 64, 1}, Case{IBV_WR_RDMA_WRITE, one_mib, 1},
          Case{IBV_WR_RDMA_READ, one_mib, 1}, Case{IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1},
          Case{IBV_WR_SEND, 8192, 100}}) {
        for (const std::uint8_t each : {std::uint8_t{10}, std::uint8_t{0}}) {
            timeout = each;
            run(
                [&one, each](End& end) {
                    const auto target = end.hear<pid_t>();
                    const ManualClock clock;
                    end.post(IBV_WR_RDMA_WRITE, 0, 0, 64, half);
                    end.expect(0);
                    stop(target);
                    for (std::uint64_t id = 1; id <= one.requests; ++id) {
                        end.post(one.opcode, id, 0, one.length, half);
                    }
                    ManualClock::advance(std::chrono::seconds(1));
                    ibv_wc wc{};
                    if (each == 0) { // without a timeout
                        EXPECT_EQ(ibv_poll_cq(end.cq, 1, &wc), 0);
                    } else if (ibv_poll_cq(end.cq, 1, &wc) != 1) {
                        ADD_FAILURE() << "no completion";
                    } else {
                        EXPECT_EQ(wc.wr_id, 1U);
                        EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(wc.status);
                    }
                    ::kill(target, SIGCONT);
                    end.tell('d');
                },
                [](End& end) {
                    end.tell(::getpid());
                    static_cast<void>(end.hear<char>());
                });
        }
    }
}

class StoppedTarget : public TwoProcesses {
  protected:
    /// Posts a write while the target is stopped, calls @p give_up, and changes the data. The
    /// target must not execute the write when it continues.
    void run_write(const std::function<void(End&)>& give_up) {
        run(
            [&give_up](End& end) {
                const auto target = end.hear<pid_t>();
                end.put(0, one_mib, 1);
                // After these requests, the pull method of the connection is known.
                for (std::uint64_t id = 0; id < 3; ++id) {
                    end.post(IBV_WR_RDMA_WRITE, id, 0, one_mib, half);
                    end.expect(id);
                }
                stop(target);
                end.post(IBV_WR_RDMA_WRITE, 9, 0, one_mib, 0);
                give_up(end);
                end.put(0, one_mib, 9);
                ::kill(target, SIGCONT);
                EXPECT_TRUE(eventually([target] { return is_at_rest(target); }));
                end.tell('d');
            },
            [](End& end) {
                end.put(0, one_mib, 5);
                end.tell(::getpid());
                static_cast<void>(end.hear<char>());
                EXPECT_TRUE(end.has(half, one_mib, 1));
                EXPECT_TRUE(end.has(0, one_mib, 5));
            });
    }
};

TEST_F(StoppedTarget, EndsAnUnreliableWriteAndDoesNotExecuteItLater) {
    type = IBV_QPT_UC;
    run_write([](End& end) {
        const ManualClock clock;
        ManualClock::advance(std::chrono::seconds(1));
        ibv_wc wc{};
        ASSERT_EQ(ibv_poll_cq(end.cq, 1, &wc), 1);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    });
}

TEST_F(StoppedTarget, DoesNotFetchWhatADestroyedQueuePairOffered) {
    for (const Memory kind : {Memory::host, Memory::memfd}) {
        memory = kind;
        run_write([](End& end) { done(ibv_destroy_qp(end.qp), "ibv_destroy_qp"); });
    }
}

TEST_F(TwoProcesses, AStoppedReaderDoesNotFetchFromARegionThatIsGone) {
    for (const Memory kind : {Memory::host, Memory::memfd}) {
        memory = kind;
        run(
            [](End& end) {
                end.put(0, one_mib, 5);
                static_cast<void>(end.hear<char>()); // The other process has written its data.
                // The first responses may contain the data, because the pull method is not known
                // yet.
                for (std::uint64_t id = 0; id < 8; ++id) {
                    end.post(IBV_WR_RDMA_READ, id, half, one_mib, 0);
                    end.expect(id);
                }
                end.tell(::getpid());
                static_cast<void>(end.hear<char>());
                end.post(IBV_WR_RDMA_READ, 9, 0, one_mib, 0);
                const ibv_wc wc = end.next();
                EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR) << ibv_wc_status_str(wc.status);
                EXPECT_TRUE(end.has(half, one_mib, 1));
                EXPECT_TRUE(end.has(0, one_mib, 5));
            },
            [](End& end) {
                end.put(0, one_mib, 1);
                end.tell('w');
                const auto reader = end.hear<pid_t>();
                // Delay the response. The reader is stopped before it arrives, and the region still
                // exists when it is sent.
                const ManualClock clock;
                done(softverbs_fail_packet(SOFTVERBS_PACKET_DELAY, 1, 1), "delay");
                end.tell('r');
                EXPECT_TRUE(eventually([] { return softverbs_pending_faults() == 0; }, settle));
                stop(reader);
                ManualClock::advance(std::chrono::milliseconds(1));
                done(ibv_dereg_mr(end.mr), "ibv_dereg_mr");
                end.put(0, one_mib, 9);
                ::kill(reader, SIGCONT);
            });
    }
}

TEST_F(TwoProcesses, DatagramsToAStoppedProcessGetLostAndStopNobody) {
    type = IBV_QPT_UD;
    run(
        [](End& end) {
            const auto target = end.hear<pid_t>();
            stop(target);
            for (std::uint64_t id = 0; id < 1000; ++id) {
                end.post(IBV_WR_SEND, id, 0, 2048);
                end.expect(id);
            }
            ::kill(target, SIGCONT);
            // The process consumes packets again, and responds to the message. The message is sent
            // several times, because it gets lost as long as the lane is full.
            end.receive(3000, 0, 4096);
            EXPECT_TRUE(eventually([&end] {
                end.post(IBV_WR_SEND, 2000, 4096, 1024);
                std::uint64_t id = end.next().wr_id;
                if (id == 2000) {
                    return false;
                }
                end.expect(2000);
                return true;
            }));
            end.meet();
        },
        [](End& end) {
            for (std::uint64_t id = 0; id < 128; ++id) {
                end.receive(id, id * 4096, 4096);
            }
            end.tell(::getpid());
            ibv_wc wc{};
            std::uint64_t got = 0;
            do {
                wc = end.expect(got++);
                end.receive(got + 127, (wc.wr_id % 128) * 4096, 4096);
            } while (wc.byte_len != 1024U + 40U);
            EXPECT_GT(got, 50U) << "what fits into the lane is kept";
            EXPECT_LT(got, 1001U);
            end.post(IBV_WR_SEND, 0, 0, 64);
            end.meet();
        });
}

TEST_F(TwoProcesses, SeveralPartsOfALongReadAreRequestedAtOnce) {
    pull = "none";
    run(
        [](End& end) {
            const auto target = end.hear<pid_t>();
            // The first read fails to copy the data directly. After that, the data is sent in
            // packets.
            end.post(IBV_WR_RDMA_READ, 1, 0, one_mib, half);
            end.expect(1);
            end.put(0, one_mib, 9);
            stop(target);
            softverbs_counters before{};
            softverbs_get_counters(&before);
            end.post(IBV_WR_RDMA_READ, 2, 0, one_mib, half);
            softverbs_counters after{};
            softverbs_get_counters(&after);
            EXPECT_EQ(after.sent - before.sent, 32U) << "parts of 16 KiB";
            ::kill(target, SIGCONT);
            end.expect(2);
            EXPECT_TRUE(end.has(0, one_mib, 3));
        },
        [](End& end) {
            end.put(half, one_mib, 3);
            end.tell(::getpid());
        });
}

} // namespace
} // namespace softverbs_test
