// SPDX-License-Identifier: BSD-3-Clause
// Direct writes: RDMA writes whose data the process of the initiator writes directly to memory of
// the target process. They need no activity of the target, and obey the same rules as other RDMA
// writes.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cstdarg>
#include <cstring>

#include "two_processes.hpp"

namespace softverbs_test {
namespace {

constexpr std::uint32_t size = 64;
/// Length of the longest write that the initiator executes.
constexpr std::uint32_t longest = 65536;

/// Called before a write to memory of the other process, once.
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
    End& end, std::uint32_t length = size, const std::function<void()>& action = [] {}) {
    bool direct = false;
    before_write() = [&] {
        direct = true;
        action();
    };
    const auto write = [&end, length] {
        end.post(IBV_WR_RDMA_WRITE, 0, 0, length, half);
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
    static bool target_has(const End& end, pid_t target, std::uint32_t length = size) {
        std::vector<std::byte> there(length);
        const iovec local{there.data(), there.size()};
        const iovec remote{reinterpret_cast<void*>(end.peer.memory + half), there.size()};
        EXPECT_EQ(::process_vm_readv(target, &local, 1, &remote, 1, 0), ssize_t{length});
        return std::memcmp(there.data(), end.data, length) == 0;
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
    /// The target withdraws something that the writes need. Later writes must not arrive.
    void run_withdrawal(ibv_wc_status expected, const std::function<void(End&)>& withdraw) {
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

    /// The initiator is interrupted in a direct write while the target calls @p withdraw, which
    /// then must wait for the write. Another thread of the target meanwhile calls a verb, and then
    /// lets the initiator continue.
    void run_interrupted_write(const std::function<void(End&)>& withdraw) {
        run(
            [](End& end) {
                static_cast<void>(end.hear<pid_t>());
                warm_up(end);
                end.put(0, size, 9);
                write_until_direct(end, size, [&end] {
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
};

TEST_F(DirectWrite, ReachesATargetThatIsStopped) {
    for (const ibv_qp_type each : {IBV_QPT_RC, IBV_QPT_UC}) {
        for (const Memory kind : {Memory::host, Memory::memfd}) {
            for (const std::uint32_t length : {size, longest}) {
                type = each;
                memory = kind;
                run(
                    [length](End& end) {
                        const auto target = end.hear<pid_t>();
                        write_until_direct(end, length);
                        stop(target);
                        for (unsigned seed = 9; seed < 20; ++seed) {
                            end.put(0, length, seed);
                            EXPECT_FALSE(target_has(end, target, length));
                            end.post(IBV_WR_RDMA_WRITE, seed, 0, length, half);
                            // A program that polls its memory may leave completions unpolled.
                            EXPECT_TRUE(target_has(end, target, length));
                        }
                        for (unsigned seed = 9; seed < 20; ++seed) {
                            end.expect(seed);
                        }
                        ::kill(target, SIGCONT);
                        end.tell('d');
                    },
                    wait_for_other);
            }
        }
    }
}

TEST_F(DirectWrite, ComesByAPacketWithoutAccessToMemoryAndWhilePacketFaultsArePlanned) {
    for (const bool planned : {false, true}) {
        SCOPED_TRACE(planned);
        pull = planned ? "process_vm" : "none";
        faults = planned ? "packet#100000=drop" : "";
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

TEST_F(DirectWrite, IsRefusedOnceTheRegionIsRevoked) {
    run_withdrawal(IBV_WC_REM_ACCESS_ERR,
                   [](End& end) { done(softverbs_revoke_mr(end.mr), "softverbs_revoke_mr"); });
}

TEST_F(DirectWrite, IsRefusedOnceTheQueuePairForbidsWrites) {
    run_withdrawal(IBV_WC_REM_INV_REQ_ERR, [](End& end) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTS;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
        done(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), "flags");
    });
}

TEST_F(DirectWrite, GetsNoAnswerOnceTheQueuePairIsInError) {
    timeout = 10;
    run_withdrawal(IBV_WC_RETRY_EXC_ERR, [](End& end) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        done(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), "ERR");
    });
}

/// Reads a byte that a device may write at this moment. To ThreadSanitizer this is a race with
/// the thread of softverbs.
__attribute__((no_sanitize("thread"))) std::byte polled(const volatile std::byte& byte) {
    return byte;
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
                EXPECT_TRUE(eventually([&] { return polled(end.data[half]) >= std::byte{100}; }));
                done(ibv_dereg_mr(end.mr), "ibv_dereg_mr");
                const std::vector<std::byte> before(end.data + half, end.data + half + size);
                static_cast<void>(end.hear<char>()); // a write has failed
                EXPECT_EQ(std::memcmp(before.data(), end.data + half, size), 0);
            });
    }
}

TEST_F(DirectWrite, IsFinishedBeforeADeregistrationReturns) {
    run_interrupted_write([](End& end) { done(ibv_dereg_mr(end.mr), "ibv_dereg_mr"); });
}

TEST_F(DirectWrite, IsFinishedBeforeTheDestructionOfItsQueuePairReturns) {
    run_interrupted_write([](End& end) { done(ibv_destroy_qp(end.qp), "ibv_destroy_qp"); });
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
            write_until_direct(end, size, [&end] {
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

/// In a program that ReachesNoMemoryOfAProgramThatReplacesTheTarget has executed: maps memory at
/// the address of the memory of its predecessor, and checks that nobody writes to it.
const bool is_replacement = [] {
    const char* const address = std::getenv("SOFTVERBS_TEST_REPLACEMENT");
    if (address == nullptr) {
        return false;
    }
    constexpr int from_initiator = 100;
    constexpr int to_initiator = 101;
    const std::string nothing(longest, 'n');
    void* const wanted = reinterpret_cast<void*>(std::strtoull(address, nullptr, 10));
    void* const memory = ::mmap(wanted, longest, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != wanted) {
        std::_Exit(2);
    }
    std::memcpy(memory, nothing.data(), nothing.size());
    char end = 0;
    if (::write(to_initiator, "r", 1) != 1 || ::read(from_initiator, &end, 1) != 1) {
        std::_Exit(3);
    }
    std::_Exit(std::memcmp(memory, nothing.data(), nothing.size()) == 0 ? 0 : 1);
}();

TEST_F(DirectWrite, ReachesNoMemoryOfAProgramThatReplacesTheTarget) {
    timeout = 10;
    std::array<int, 2> to_target{};
    std::array<int, 2> to_initiator{};
    ASSERT_EQ(::pipe2(to_target.data(), O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(to_initiator.data(), O_CLOEXEC), 0);
    for (const std::uint32_t length : {size, longest}) {
        start(
            [&](End& end) {
                static_cast<void>(end.hear<pid_t>());
                write_until_direct(end, length);
                before_write() = [&] {
                    end.tell('x');
                    char ready = 0;
                    EXPECT_EQ(::read(to_initiator[0], &ready, 1), 1);
                };
                end.post(IBV_WR_RDMA_WRITE, 9, 0, length, half);
                EXPECT_EQ(end.next().status, IBV_WC_RETRY_EXC_ERR);
                EXPECT_EQ(::write(to_target[1], "e", 1), 1);
                std::exit(HasFailure() ? 1 : 0); // the other end is gone
            },
            [&](End& end) {
                end.tell(::getpid());
                static_cast<void>(end.hear<char>());
                ::dup2(to_target[0], 100);
                ::dup2(to_initiator[1], 101);
                const std::string address = std::to_string(end.base + half);
                ::setenv("SOFTVERBS_TEST_REPLACEMENT", address.c_str(), 1);
                ::execl("/proc/self/exe", "replacement", nullptr);
            });
        finish();
    }
}

} // namespace

void call_before_write() {
    if (const auto function = std::exchange(before_write(), nullptr)) {
        function();
    }
}

} // namespace softverbs_test

// All libraries of this program call this function instead of libc's. It has a name of its own,
// because clangd compares the names of parameters with libc's declaration.
extern "C" long replaced_syscall(long number, ...) noexcept __asm__("syscall");
// It reads six arguments, also where there are fewer.
extern "C" __attribute__((no_sanitize("address"))) long replaced_syscall(long number,
                                                                         ...) noexcept {
    static auto* const next = reinterpret_cast<long (*)(long, ...)>(::dlsym(RTLD_NEXT, "syscall"));
    if (number == SYS_pwrite64) {
        softverbs_test::call_before_write();
    }
    va_list arguments;
    va_start(arguments, number);
    std::array<long, 6> values{};
    for (long& value : values) {
        value = va_arg(arguments, long);
    }
    va_end(arguments);
    return next(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
