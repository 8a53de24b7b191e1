// SPDX-License-Identifier: BSD-3-Clause
// A program that is one end of a connection. It posts requests of all kinds until a request fails
// or it receives a command to stop. Its standard input is a socket to the other end. On standard
// output, it prints "running", and at its end "stopped" or the status of the failed request.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "two_processes.hpp"

namespace softverbs_test {
namespace {

constexpr int depth = 16;

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

bool told_to_stop(int socket) {
    pollfd poll{socket, POLLIN, 0};
    return ::poll(&poll, 1, 0) == 1;
}

const char* run(int socket) {
    // The process ends without destroying its objects. The variable is static, so that a leak
    // checker does not report them.
    static const End end(socket, IBV_QPT_RC, Memory::host, 12 /* 17 ms */, 3);
    const auto receive = [] { end.receive(0, 0, 64); };
    for (int i = 0; i < 2 * depth; ++i) {
        receive();
    }
    end.meet();
    std::puts("running");
    std::fflush(stdout);

    std::uint64_t posted = 0;
    std::uint64_t completed = 0;
    while (true) {
        // The lower half of the memory is used for sends and reads of this process. The peer writes
        // to the upper half.
        for (; posted - completed < depth; ++posted) {
            const Kind& kind = kinds[posted % kinds.size()];
            end.post(kind.opcode, posted, 0, kind.length, half);
        }
        std::array<ibv_wc, depth> found{};
        const int count = ibv_poll_cq(end.cq, depth, found.data());
        for (int i = 0; i < count; ++i) {
            const ibv_wc& wc = found[static_cast<std::size_t>(i)];
            if (wc.status != IBV_WC_SUCCESS) {
                return ibv_wc_status_str(wc.status);
            }
            if ((wc.opcode & IBV_WC_RECV) != 0) {
                receive();
            } else {
                ++completed;
            }
        }
        if (count < 0) {
            return "polling failed";
        }
        if (told_to_stop(STDERR_FILENO)) {
            return "stopped";
        }
    }
}

} // namespace
} // namespace softverbs_test

int main() {
    try {
        std::puts(softverbs_test::run(STDIN_FILENO));
    } catch (const std::exception& error) {
        std::puts(error.what());
    }
    std::fflush(stdout);
}
