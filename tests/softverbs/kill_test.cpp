// SPDX-License-Identifier: BSD-3-Clause
// Two processes run traffic, and one of them is killed at varying moments. The other one must get
// an error completion soon, and no files may remain.
#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "two_processes.hpp"

namespace softverbs_test {
namespace {

constexpr int requests_in_flight = 16;

struct Kind {
    ibv_wr_opcode opcode;
    std::uint32_t length;
};
/// The kinds of requests, which alternate.
constexpr std::array<Kind, 5> kinds{{{IBV_WR_RDMA_WRITE, 8},
                                     {IBV_WR_RDMA_READ, 100'000},
                                     {IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
                                     {IBV_WR_SEND, 64},
                                     {IBV_WR_RDMA_WRITE, one_mib / 2}}};

/// What the test and both ends share.
struct Shared {
    std::atomic<unsigned> running;
    std::atomic<pid_t> stops; // the end that shall stop; 0: none
};

/// Posts requests of all kinds until a request fails or the end shall stop. Returns the status of
/// the failed request; success: the end has stopped.
ibv_wc_status run_traffic(const End& end, Shared& shared) {
    const auto receive = [&end] { end.receive(0, 0, 64); };
    for (int i = 0; i < 2 * requests_in_flight; ++i) {
        receive();
    }
    end.meet();
    ++shared.running;
    std::uint64_t posted = 0;
    std::uint64_t completed = 0;
    while (shared.stops != ::getpid()) {
        // The lower half of the memory is used for sends and reads of this process. The peer writes
        // to the upper half.
        for (; posted - completed < requests_in_flight; ++posted) {
            const Kind& kind = kinds[posted % kinds.size()];
            end.post(kind.opcode, posted, 0, kind.length, half);
        }
        std::array<ibv_wc, requests_in_flight> found{};
        const int count = ibv_poll_cq(end.cq, requests_in_flight, found.data());
        if (count < 0) {
            throw std::runtime_error("polling failed");
        }
        for (int i = 0; i < count; ++i) {
            const ibv_wc& wc = found[static_cast<std::size_t>(i)];
            if (wc.status != IBV_WC_SUCCESS) {
                return wc.status;
            }
            if ((wc.opcode & IBV_WC_RECV) != 0) {
                receive();
            } else {
                ++completed;
            }
        }
    }
    return IBV_WC_SUCCESS;
}

class Kill : public TwoProcesses {
  protected:
    void SetUp() override {
        timeout = 12; // 17 ms
        retries = 3;
        void* const mapped = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(mapped, MAP_FAILED);
        shared_ = new (mapped) Shared{};
    }
    void TearDown() override { ::munmap(shared_, sizeof(Shared)); }

    /// Starts both ends, and waits until they run traffic. Both exit when a request fails. The
    /// status of this request must be @p expected; none: it can be any.
    void start_traffic(std::optional<ibv_wc_status> expected) {
        shared_->running = 0;
        const auto role = [this, expected](End& end) {
            const ibv_wc_status status = run_traffic(end, *shared_);
            EXPECT_EQ(status, expected.value_or(status)) << ibv_wc_status_str(status);
            std::exit(HasFailure() ? 1 : 0); // the other end is gone
        };
        start(role, role);
        ASSERT_TRUE(eventually([this] { return shared_->running == 2; }));
    }
    [[nodiscard]] std::ptrdiff_t files() const {
        const std::filesystem::directory_iterator all(directory_.path());
        return std::distance(begin(all), end(all));
    }

    Shared* shared_ = nullptr;
};

TEST_F(Kill, OfEitherSideAtAnyMomentEndsTheOthersWorkAndLeavesNothing) {
    constexpr unsigned rounds = 200;
    std::mt19937 random(20261121);
    std::uniform_int_distribution<int> microseconds(0, 4000);
    for (unsigned round = 0; round < rounds && !HasFailure(); ++round) {
        SCOPED_TRACE(round);
        ASSERT_NO_FATAL_FAILURE(start_traffic(IBV_WC_RETRY_EXC_ERR));
        std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
        const pid_t victim = children_.at(round % 2);
        ASSERT_EQ(::kill(victim, SIGKILL), 0);
        EXPECT_TRUE(WIFSIGNALED(status_of_child(victim)));
        expect_success(children_.at(1 - round % 2));
        // The survivor has removed its own files. The next process that starts removes those of the
        // killed one.
        ASSERT_LE(files(), 3);
    }
    ASSERT_NO_FATAL_FAILURE(start_traffic(std::nullopt));
    EXPECT_EQ(files(), 6) << "a lock and two sockets each";
    shared_->stops = children_[0];
    finish();
    EXPECT_EQ(files(), 0);
}

} // namespace
} // namespace softverbs_test
