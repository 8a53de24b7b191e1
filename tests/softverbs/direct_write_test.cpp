// SPDX-License-Identifier: BSD-3-Clause
// Direct writes: RDMA writes whose data the process of the initiator writes directly to memory of
// the target process. They need no activity of the target, and obey the same rules as other RDMA
// writes.
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cstring>

#include "two_processes.hpp"

namespace softverbs_test {
namespace {

constexpr std::uint32_t size = 64;

/// Called before process_vm_writev(2), once.
std::function<void()>& before_write() {
    static std::function<void()> function;
    return function;
}

/// Executes some writes, so that the target grants direct writes to the initiator.
void warm_up(End& end) {
    end.put(0, size, 1);
    for (std::uint64_t id = 0; id < 4; ++id) {
        end.post(IBV_WR_RDMA_WRITE, id, 0, size, half);
        end.expect(id);
    }
}

/// Executes writes until one of them is a direct write, and calls @p action before that one. A
/// write is sent as a packet if the target has not consumed all earlier packets.
void write_until_direct(
    End& end, const std::function<void()>& action = [] {}) {
    bool direct = false;
    before_write() = [&] {
        direct = true;
        action();
    };
    const auto write = [&end] {
        end.post(IBV_WR_RDMA_WRITE, 0, 0, size, half);
        end.expect(0);
    };
    EXPECT_TRUE(eventually([&] { return direct; }, write));
}

class DirectWrite : public TwoProcesses {
  protected:
    /// Executes some writes, so that direct writes are granted, and then stops the target process.
    /// @return the process id of the target
    static pid_t stop_target(End& end) {
        const auto target = end.hear<pid_t>();
        warm_up(end);
        stop(target);
        return target;
    }
    /// Returns whether the memory of the target is equal to that of the initiator at offset 0.
    static bool target_has(const End& end, pid_t target) {
        std::array<std::byte, size> there{};
        const iovec local{there.data(), there.size()};
        const iovec remote{reinterpret_cast<void*>(end.peer.memory + half), there.size()};
        EXPECT_EQ(::process_vm_readv(target, &local, 1, &remote, 1, 0), ssize_t{size});
        return std::memcmp(there.data(), end.data, size) == 0;
    }
    static void expect_nothing(const End& end) {
        ibv_wc wc{};
        for (unsigned polls = 0; polls < 1000; ++polls) {
            ASSERT_EQ(ibv_poll_cq(end.cq, 1, &wc), 0);
        }
    }
    static void wait_for_other(End& end) {
        end.tell(::getpid());
        static_cast<void>(end.hear<char>());
    }
};

TEST_F(DirectWrite, ReachesATargetThatIsStopped) {
    for (const ibv_qp_type each : {IBV_QPT_RC, IBV_QPT_UC}) {
        for (const Memory kind : {Memory::host, Memory::memfd}) {
            type = each;
            memory = kind;
            run(
                [](End& end) {
                    const auto target = end.hear<pid_t>();
                    write_until_direct(end);
                    stop(target);
                    for (unsigned seed = 9; seed < 20; ++seed) {
                        end.put(0, size, seed);
                        EXPECT_FALSE(target_has(end, target));
                        end.post(IBV_WR_RDMA_WRITE, seed, 0, size, half);
                        end.expect(seed);
                        EXPECT_TRUE(target_has(end, target));
                    }
                    ::kill(target, SIGCONT);
                    end.tell('d');
                },
                wait_for_other);
        }
    }
}

TEST_F(DirectWrite, ComesByAPacketWhereMemoryOfOtherProcessesIsNotAccessible) {
    pull = "none";
    run(
        [](End& end) {
            const pid_t target = stop_target(end);
            end.put(0, size, 9);
            end.post(IBV_WR_RDMA_WRITE, 9, 0, size, half);
            expect_nothing(end);
            EXPECT_FALSE(target_has(end, target));
            ::kill(target, SIGCONT);
            end.expect(9);
            EXPECT_TRUE(target_has(end, target));
            end.tell('d');
        },
        wait_for_other);
}

TEST_F(DirectWrite, ComesByAPacketWhilePacketFaultsArePlanned) {
    faults = "packet#100000=drop";
    run(
        [](End& end) {
            const pid_t target = stop_target(end);
            end.post(IBV_WR_RDMA_WRITE, 9, 0, size, half);
            expect_nothing(end);
            ::kill(target, SIGCONT);
            end.expect(9);
            end.tell('d');
        },
        wait_for_other);
}

TEST_F(DirectWrite, ComesByAPacketWhileTheProgramHasNotPolledACompletion) {
    run(
        [](End& end) {
            const auto target = end.hear<pid_t>();
            write_until_direct(end);
            stop(target);
            end.put(0, size, 8);
            end.post(IBV_WR_RDMA_WRITE, 8, 0, size, half);
            EXPECT_TRUE(target_has(end, target));
            end.put(0, size, 9);
            end.post(IBV_WR_RDMA_WRITE, 9, 0, size, half);
            EXPECT_FALSE(target_has(end, target));
            ::kill(target, SIGCONT);
            end.expect(8);
            end.expect(9);
            EXPECT_TRUE(target_has(end, target));
            end.tell('d');
        },
        wait_for_other);
}

TEST_F(DirectWrite, DoesNotOvertakeASend) {
    run(
        [](End& end) {
            const pid_t target = stop_target(end);
            end.put(0, size, 9);
            end.post(IBV_WR_SEND, 8, 0, size);
            end.post(IBV_WR_RDMA_WRITE, 9, 0, size, half);
            expect_nothing(end);
            EXPECT_FALSE(target_has(end, target));
            ::kill(target, SIGCONT);
            end.expect(8);
            end.expect(9);
            EXPECT_TRUE(target_has(end, target));
            end.tell('d');
        },
        [](End& end) {
            end.receive(1, 0, size);
            wait_for_other(end);
            end.expect(1);
        });
}

/// The target withdraws something that the writes need. Later writes must not arrive.
void run_withdrawal(const std::function<void(End&)>& warm_up, ibv_wc_status expected,
                    const std::function<void(End&)>& withdraw,
                    const std::function<void(const std::function<void(End&)>&,
                                             const std::function<void(End&)>&)>& run) {
    run(
        [&](End& end) {
            const ManualClock clock;
            warm_up(end);
            end.tell('w');
            static_cast<void>(end.hear<char>());
            end.put(0, size, 9);
            end.post(IBV_WR_RDMA_WRITE, 9, 0, size, half);
            ibv_wc wc{};
            EXPECT_TRUE(becomes_true([&] { return ibv_poll_cq(end.cq, 1, &wc) != 0; }));
            EXPECT_EQ(wc.status, expected) << ibv_wc_status_str(wc.status);
            end.tell('d');
        },
        [&](End& end) {
            static_cast<void>(end.hear<char>());
            withdraw(end);
            end.tell('g');
            static_cast<void>(end.hear<char>());
            EXPECT_TRUE(end.has(half, size, 1));
        });
}

TEST_F(DirectWrite, IsRefusedOnceTheRegionIsDeregistered) {
    run_withdrawal(
        warm_up, IBV_WC_REM_ACCESS_ERR,
        [](End& end) { done(ibv_dereg_mr(end.mr), "ibv_dereg_mr"); },
        [this](const auto& one, const auto& other) { run(one, other); });
}

TEST_F(DirectWrite, IsRefusedOnceTheRegionIsRevoked) {
    run_withdrawal(
        warm_up, IBV_WC_REM_ACCESS_ERR,
        [](End& end) { done(softverbs_revoke_mr(end.mr), "softverbs_revoke_mr"); },
        [this](const auto& one, const auto& other) { run(one, other); });
}

TEST_F(DirectWrite, IsRefusedOnceTheQueuePairForbidsWrites) {
    run_withdrawal(
        warm_up, IBV_WC_REM_INV_REQ_ERR,
        [](End& end) {
            ibv_qp_attr attr{};
            attr.qp_state = IBV_QPS_RTS;
            attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
            done(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), "flags");
        },
        [this](const auto& one, const auto& other) { run(one, other); });
}

TEST_F(DirectWrite, GetsNoAnswerOnceTheQueuePairIsInError) {
    timeout = 10;
    run_withdrawal(
        warm_up, IBV_WC_RETRY_EXC_ERR,
        [](End& end) {
            ibv_qp_attr attr{};
            attr.qp_state = IBV_QPS_ERR;
            done(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), "ERR");
        },
        [this](const auto& one, const auto& other) { run(one, other); });
}

TEST_F(DirectWrite, DoesNotChangeMemoryAfterItsDeregistration) {
    for (int round = 0; round < 5; ++round) {
        run(
            [](End& end) {
                warm_up(end);
                for (std::uint64_t id = 0;; ++id) {
                    std::memset(end.data, static_cast<int>(id), size);
                    end.post(IBV_WR_RDMA_WRITE, id, 0, size, half);
                    const ibv_wc wc = end.next();
                    if (wc.status != IBV_WC_SUCCESS) {
                        EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
                        end.tell('e');
                        return;
                    }
                }
            },
            [](End& end) {
                const volatile std::byte& byte = end.data[half];
                EXPECT_TRUE(eventually([&] { return byte >= std::byte{100}; }));
                done(ibv_dereg_mr(end.mr), "ibv_dereg_mr");
                const std::vector<std::byte> before(end.data + half, end.data + half + size);
                static_cast<void>(end.hear<char>()); // a write has failed
                EXPECT_EQ(std::memcmp(before.data(), end.data + half, size), 0);
            });
    }
}

/// The initiator is interrupted in a direct write while the target calls @p withdraw, which then
/// must wait for the write. Another thread of the target meanwhile calls a verb, and then lets the
/// initiator continue.
void run_interrupted_write(const std::function<void(End&)>& withdraw,
                           const std::function<void(const std::function<void(End&)>&,
                                                    const std::function<void(End&)>&)>& run) {
    run(
        [](End& end) {
            static_cast<void>(end.hear<pid_t>());
            warm_up(end);
            end.put(0, size, 9);
            write_until_direct(end, [&end] {
                end.tell('w');
                static_cast<void>(end.hear<char>());
            });
            end.tell('d');
        },
        [&](End& end) {
            end.tell(::getpid());
            static_cast<void>(end.hear<char>());
            const ManualClock clock; // withdraw() waits for the write without limit
            const pid_t waiter = ::gettid();
            std::atomic<bool> returned = false;
            std::thread other([&] {
                EXPECT_TRUE(eventually([&] { return is_asleep(waiter); }));
                // Process::lock is free during the wait.
                ibv_device_attr attributes{};
                EXPECT_EQ(ibv_query_device(end.context, &attributes), 0);
                EXPECT_FALSE(returned);
                end.tell('g');
            });
            withdraw(end);
            returned = true;
            EXPECT_TRUE(end.has(half, size, 9));
            end.put(half, size, 1);
            other.join();
            static_cast<void>(end.hear<char>());
            EXPECT_TRUE(end.has(half, size, 1));
        });
}

TEST_F(DirectWrite, IsFinishedBeforeADeregistrationReturns) {
    run_interrupted_write([](End& end) { done(ibv_dereg_mr(end.mr), "ibv_dereg_mr"); },
                          [this](const auto& one, const auto& other) { run(one, other); });
}

TEST_F(DirectWrite, IsFinishedBeforeTheDestructionOfItsQueuePairReturns) {
    run_interrupted_write([](End& end) { done(ibv_destroy_qp(end.qp), "ibv_destroy_qp"); },
                          [this](const auto& one, const auto& other) { run(one, other); });
}

TEST_F(DirectWrite, IsDelayedLikeAPacketWhenTheTargetIsSlowedDown) {
    run(
        [](End& end) {
            static_cast<void>(end.hear<pid_t>());
            warm_up(end);
            end.tell('w');
            static_cast<void>(end.hear<char>());
            EXPECT_TRUE(lasts_at_least(std::chrono::milliseconds(100), [&end] {
                end.post(IBV_WR_RDMA_WRITE, 9, 0, size, half);
                end.expect(9);
            }));
            end.tell('d');
        },
        [](End& end) {
            end.tell(::getpid());
            static_cast<void>(end.hear<char>());
            EXPECT_EQ(softverbs_slow_down(100), 0);
            end.tell('s');
            static_cast<void>(end.hear<char>());
        });
}

TEST_F(DirectWrite, DoesNotDelayADeregistrationForeverWhenTheWriterIsKilled) {
    start(
        [](End& end) {
            static_cast<void>(end.hear<pid_t>());
            warm_up(end);
            write_until_direct(end, [&end] {
                end.tell(::getpid());
                ::raise(SIGSTOP);
            });
        },
        [](End& end) {
            end.tell(::getpid());
            const auto writer = end.hear<pid_t>();
            const ManualClock clock; // only the end of the writer ends the wait
            const pid_t waiter = ::gettid();
            std::atomic<bool> killed = false;
            std::thread killer([&] {
                EXPECT_TRUE(eventually([&] { return is_asleep(waiter); }));
                killed = true;
                ::kill(writer, SIGKILL);
            });
            done(ibv_dereg_mr(end.mr), "ibv_dereg_mr");
            EXPECT_TRUE(killed);
            killer.join();
            std::exit(HasFailure() ? 1 : 0); // the other end is gone
        });
    int status = 0;
    ASSERT_EQ(::waitpid(children_[0], &status, 0), children_[0]);
    EXPECT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(::waitpid(children_[1], &status, 0), children_[1]);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

} // namespace

void call_before_write() {
    if (const auto function = std::exchange(before_write(), nullptr)) {
        function();
    }
}

} // namespace softverbs_test

// This stands before libc's for all libraries of this program.
extern "C" ssize_t process_vm_writev(pid_t pid, const iovec* lvec, unsigned long liovcnt,
                                     const iovec* rvec, unsigned long riovcnt,
                                     unsigned long flags) noexcept {
    softverbs_test::call_before_write();
    return ::syscall(SYS_process_vm_writev, pid, lvec, liovcnt, rvec, riovcnt, flags);
}
