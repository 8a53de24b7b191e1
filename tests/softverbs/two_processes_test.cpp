// SPDX-License-Identifier: BSD-3-Clause
// Traffic between two processes with all methods of data transfer, also while one process sleeps.
#include "two_processes.hpp"

namespace softverbs_test {
namespace {

/// Executes every verb from one end, with small and with large messages.
void exchange(End& end, std::uint32_t bulk) {
    constexpr std::size_t counter = half - 64;
    end.put(0, bulk, 1);
    end.meet();
    end.post(IBV_WR_SEND, 1, 0, 64);
    end.post(IBV_WR_SEND, 2, 0, bulk);
    end.post(IBV_WR_RDMA_WRITE, 3, 0, bulk, 0);
    end.post(IBV_WR_RDMA_READ, 4, half, bulk, half);
    end.post(IBV_WR_RDMA_READ, 5, counter + 16, 8, counter + 16);
    end.post(IBV_WR_ATOMIC_FETCH_AND_ADD, 6, counter, 8, counter);
    end.post(IBV_WR_ATOMIC_FETCH_AND_ADD, 7, counter, 8, counter);
    for (std::uint64_t id = 1; id <= 7; ++id) {
        end.expect(id);
    }
    EXPECT_TRUE(end.has(half, bulk, 2));
    std::uint64_t before = 0;
    std::memcpy(&before, end.data + counter, sizeof before);
    EXPECT_EQ(before, 1U);
    end.meet();
}
/// The other end for exchange().
void serve(End& end, std::uint32_t bulk) {
    constexpr std::size_t counter = half - 64;
    end.put(half, bulk, 2);
    end.receive(20, 2 * half - 64, 64);
    end.receive(21, half / 2, bulk);
    std::memset(end.data + counter, 0, 64);
    end.meet();
    EXPECT_EQ(end.expect(20).byte_len, 64U);
    EXPECT_EQ(end.expect(21).byte_len, bulk);
    end.meet();
    EXPECT_TRUE(end.has(0, bulk, 1));
    EXPECT_TRUE(end.has(half / 2, bulk, 1));
    std::uint64_t sum = 0;
    std::memcpy(&sum, end.data + counter, sizeof sum);
    EXPECT_EQ(sum, 2U);
}

TEST_F(TwoProcesses, ExchangeByReadingByRecordsAndByASharedMapping) {
    for (const Memory kind : {Memory::host, Memory::memfd}) {
        for (const char* const method : {"process_vm", "none"}) {
            SCOPED_TRACE(method);
            memory = kind;
            pull = method;
            run(
                [this](End& end) {
                    exchange(end, one_mib);
                    EXPECT_EQ(softverbs_pull_method(), pull == "none" ? "records" : pull);
                },
                [](End& end) { serve(end, one_mib); });
        }
    }
}

TEST_F(TwoProcesses, ExchangeByRecordsOfWhichSomeGetLost) {
    pull = "none";
    retries = 7;  // some packets are lost more than once
    timeout = 16; // 0.3 s: longer than a busy machine needs for a response
    faults =
        "packet#2=drop,packet#7=drop,packet#40=drop,packet#90=duplicate,packet#120=drop,"
        "packet#150=corrupt";
    run([](End& end) { exchange(end, one_mib); }, [](End& end) { serve(end, one_mib); });
}

TEST_F(TwoProcesses, FencedReadInSeveralRecords) {
    pull = "none";
    run(
        [](End& end) {
            end.meet();
            ibv_sge sge{end.base, one_mib, end.mr->lkey};
            ibv_send_wr wr{};
            wr.opcode = IBV_WR_RDMA_READ;
            wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
            wr.sg_list = &sge;
            wr.num_sge = 1;
            wr.wr.rdma = {end.peer.memory, end.peer.rkey};
            ibv_send_wr* bad = nullptr;
            done(ibv_post_send(end.qp, &wr, &bad), "ibv_post_send");
            end.expect(0);
            EXPECT_TRUE(end.has(0, one_mib, 3));
        },
        [](End& end) {
            end.put(0, one_mib, 3);
            end.meet();
        });
}

TEST_F(TwoProcesses, DeviceMemory) {
    memory = Memory::device;
    run(
        [](End& end) {
            end.put(0, 32768, 1);
            end.meet();
            end.post(IBV_WR_RDMA_WRITE, 1, 0, 32768, 0);
            end.post(IBV_WR_RDMA_READ, 2, 32768, 32768, 32768);
            end.expect(1);
            end.expect(2);
            EXPECT_TRUE(end.has(32768, 32768, 2));
            end.meet();
        },
        [](End& end) {
            end.put(32768, 32768, 2);
            end.meet();
            end.meet();
            EXPECT_TRUE(end.has(0, 32768, 1));
        });
}

TEST_F(TwoProcesses, UnreliableConnection) {
    type = IBV_QPT_UC;
    for (const char* const method : {"process_vm", "none"}) {
        pull = method;
        run(
            [](End& end) {
                end.put(0, one_mib, 1);
                end.meet();
                end.post(IBV_WR_SEND, 1, 0, 64);
                end.post(IBV_WR_RDMA_WRITE, 2, 0, one_mib, 0);
                end.post(IBV_WR_SEND, 3, 0, one_mib);
                for (const std::uint64_t id : {1U, 2U, 3U}) {
                    end.expect(id);
                }
            },
            [](End& end) {
                end.receive(20, 2 * half - 64, 64);
                end.receive(21, half / 2, one_mib);
                end.meet();
                end.expect(20);
                end.expect(21);
                EXPECT_TRUE(end.has(0, one_mib, 1));
                EXPECT_TRUE(end.has(half / 2, one_mib, 1));
            });
    }
}

TEST_F(TwoProcesses, Datagrams) {
    type = IBV_QPT_UD;
    run(
        [](End& end) {
            end.put(0, 4096, 1);
            end.meet();
            for (std::uint64_t id = 0; id < 100; ++id) {
                end.post(IBV_WR_SEND, id, 0, 2048);
                end.expect(id);
            }
        },
        [](End& end) {
            for (std::uint64_t id = 0; id < 100; ++id) {
                end.receive(id, id * 4096, 4096);
            }
            end.meet();
            for (std::uint64_t id = 0; id < 100; ++id) {
                const ibv_wc wc = end.expect(id);
                EXPECT_EQ(wc.byte_len, 2048U + 40U);
                EXPECT_EQ(wc.src_qp, end.peer.qp_number);
                EXPECT_TRUE(end.has(id * 4096 + 40, 2048, 1));
            }
        });
}

TEST_F(TwoProcesses, OneSidedWhileTheTargetSleeps) {
    start(
        [](End& end) {
            const auto target = end.hear<pid_t>();
            for (std::uint64_t id = 0; id < 20; ++id) {
                end.post(IBV_WR_RDMA_WRITE, 3 * id, 0, id % 2 == 0 ? 8 : one_mib, 0);
                end.post(IBV_WR_RDMA_READ, 3 * id + 1, half, one_mib, half);
                end.post(IBV_WR_ATOMIC_FETCH_AND_ADD, 3 * id + 2, 0, 8, half - 64);
                for (std::uint64_t one = 0; one < 3; ++one) {
                    end.expect(3 * id + one);
                }
                EXPECT_TRUE(id % 4 == 0 || eventually([&] { return is_at_rest(target); }));
            }
            EXPECT_TRUE(end.has(half, one_mib, 9));
            // Exit here, because the other end sleeps until it is killed.
            std::exit(testing::Test::HasFailure() ? 1 : 0);
        },
        [](End& end) {
            end.put(half, one_mib, 9);
            end.tell(::getpid());
            while (true) {
                ::pause();
            }
        });
    int status = 0;
    ASSERT_EQ(::waitpid(children_[0], &status, 0), children_[0]);
    EXPECT_EQ(status, 0);
    ::kill(children_[1], SIGKILL);
    ASSERT_EQ(::waitpid(children_[1], &status, 0), children_[1]);
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

/// Returns the number of packets that this process has received.
std::uint64_t received() {
    softverbs_counters counters{};
    softverbs_get_counters(&counters);
    return counters.received;
}

/// Waits for a packet, so that the threads of softverbs get the lock, which is not fair.
void wait_for_packet(const std::stop_token& over) {
    const std::uint64_t before = received();
    EXPECT_TRUE(eventually([&] { return received() != before || over.stop_requested(); }));
}

/// Registers and deregisters a region, again after each packet that arrives.
void deregister_regions(const std::stop_token& over, ibv_pd* pd) {
    std::vector<std::byte> bytes(65536);
    while (!over.stop_requested()) {
        ibv_mr* const mr =
            made(ibv_reg_mr(pd, bytes.data(), bytes.size(), full_access), "ibv_reg_mr");
        done(ibv_dereg_mr(mr), "ibv_dereg_mr");
        wait_for_packet(over);
    }
}

TEST_F(TwoProcesses, ReadsAreFetchedAgainAfterRegionsWereDeregistered) {
    constexpr std::uint32_t length = one_mib / 8;
    run(
        [](End& end) {
            // True when a read has one response, which contains a segment. With data in packets, it
            // would have 8. The first responses contain data, because the pull method is not known
            // yet, and so do some after a copy that has failed.
            const auto is_fetched = [&end] {
                const std::uint64_t before = received();
                end.post(IBV_WR_RDMA_READ, 1, half, length, 0);
                end.expect(1);
                return received() - before <= 2;
            };
            EXPECT_TRUE(eventually(is_fetched));
            end.meet();
            // During this time, some copies fail. Each of these reads is repeated, with the data in
            // packets.
            for (std::uint64_t id = 0; id < 150; ++id) {
                end.post(IBV_WR_RDMA_READ, id, half, length, 0);
                end.expect(id);
                ASSERT_TRUE(end.has(half, length, 1)) << id;
                std::memset(end.data + half, 0, length);
            }
            end.meet();
            EXPECT_TRUE(eventually(is_fetched));
            end.meet();
        },
        [](End& end) {
            end.put(0, length, 1);
            end.meet();
            {
                const std::jthread other(deregister_regions, end.pd);
                end.meet();
            }
            end.meet();
        });
}

TEST_F(TwoProcesses, BulkInBothDirectionsAtOnce) {
    const Role both = [](End& end) {
        constexpr std::uint64_t rounds = 40;
        constexpr std::uint64_t depth = 8;
        end.put(0, one_mib, 5);
        end.meet();
        std::uint64_t posted = 0;
        std::uint64_t completed = 0;
        while (completed < rounds) {
            for (; posted < std::min(rounds, completed + depth); ++posted) {
                end.post(posted % 4 == 3 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, posted,
                         posted % 4 == 3 ? half : 0, one_mib, posted % 4 == 3 ? 0 : half / 2);
            }
            end.expect(completed++);
        }
        end.meet();
        EXPECT_TRUE(end.has(half, one_mib, 5));
        EXPECT_TRUE(end.has(half / 2, one_mib, 5));
    };
    for (const char* const method : {"process_vm", "none"}) {
        pull = method;
        run(both, both);
    }
}

TEST_F(TwoProcesses, LongMessagesAreCopiedInSteps) {
    constexpr std::uint32_t length = 4 * one_mib;
    const auto direct_copies = [] {
        softverbs_counters counters{};
        softverbs_get_counters(&counters);
        return counters.direct_copies;
    };
    for (const Memory kind : {Memory::host, Memory::memfd}) {
        memory = kind;
        run(
            [&](End& end) {
                end.put(0, length, 1);
                // Whether memory can be copied directly is not known at first.
                std::uint64_t id = 0;
                for (std::uint64_t before = direct_copies(); direct_copies() == before; ++id) {
                    end.post(IBV_WR_RDMA_READ, id, half, one_mib, half);
                    end.expect(id);
                }
                end.meet();
                end.post(IBV_WR_RDMA_WRITE, id, 0, length, half);
                end.expect(id);
                end.meet();
                end.put(half, length, 9);
                const std::uint64_t before = direct_copies();
                end.post(IBV_WR_RDMA_READ, ++id, half, length, half);
                end.expect(id);
                EXPECT_EQ(direct_copies() - before, 4U);
                EXPECT_TRUE(end.has(half, length, 1));
            },
            [&](End& end) {
                const std::uint64_t before = direct_copies();
                end.meet();
                end.meet();
                EXPECT_GE(direct_copies() - before, 4U);
                EXPECT_TRUE(end.has(half, length, 1));
            });
    }
}

} // namespace
} // namespace softverbs_test
