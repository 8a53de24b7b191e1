// SPDX-License-Identifier: BSD-3-Clause
// Counts by callgrind the instructions of equal loops in plain C verbs and with this library. The
// exit status is 1 if the library needs more instructions in a loop.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "../callgrind.hpp"
#include "loops.h"
#include "null_device.h"

#include <CLI/CLI.hpp>

namespace {

struct Loop {
    const char* name;
    const char* what;
    c_loop* c;
    CxxLoop* cxx;
    /// The number of operations in one iteration.
    int operations;
};

constexpr std::array<Loop, 7> loops{{
    {"send_poll", "post_send, poll_cq", c_send_poll, cxx_send_poll, 1},
    {"write_poll", "RDMA write, poll_cq", c_write_poll, cxx_write_poll, 1},
    {"fetch_add_poll", "fetch-add, poll_cq", c_fetch_add_poll, cxx_fetch_add_poll, 1},
    {"post_recv", "post_recv", c_post_recv, cxx_post_recv, 1},
    {"write_list", "list of 32 writes, poll_cq", c_write_list, cxx_write_list, batch_size},
    {"write_batch", "ibv_wr_* of 32 writes, poll_cq", c_write_batch, cxx_write_batch, batch_size},
    {"poll_extended", "start_poll, 32 times next_poll", c_poll_extended, cxx_poll_extended,
     batch_size},
}};

/// Runs one loop. The program runs itself with --loop under callgrind.
int run_loop(const std::string& name, bool with_library, long iterations) {
    null_device device{};
    null_device_init(&device);
    const transfer data{
        .local = {.addr = 0x1000, .length = 64, .lkey = 1}, .remote_address = 0x2000, .rkey = 2};
    const endpoint plain{
        .qp = &device.qpx.qp_base, .qpx = &device.qpx, .cq = &device.cq, .cqx = &device.cqx};
    const Endpoint wrapped{.qp = rdmabuf::QueuePair::borrow(plain.qp, plain.qpx),
                           .cq = rdmabuf::CompletionQueue::borrow(plain.cq),
                           .cqx = rdmabuf::ExtendedCompletionQueue::borrow(plain.cqx)};
    for (const Loop& loop : loops) {
        if (name == loop.name) {
            return with_library ? loop.cxx(wrapped, data, iterations)
                                : loop.c(&plain, &data, iterations);
        }
    }
    throw std::runtime_error("no such loop: " + name);
}

/// Returns the instructions of one call of a loop function.
long count(const Loop& loop, bool with_library, long iterations) {
    return callgrind::count((with_library ? "cxx_" : "c_") + std::string(loop.name),
                            "--loop " + std::string(loop.name) + " --iterations " +
                                std::to_string(iterations) +
                                (with_library ? " --with-library" : ""));
}

/// Returns the instructions of one operation, without the cost of entering the loop: the difference
/// between the counts of two runs, divided by the difference of their numbers of operations.
double per_operation(const Loop& loop, bool with_library) {
    constexpr long few = 1000;
    constexpr long many = 3000;
    return static_cast<double>(count(loop, with_library, many) - count(loop, with_library, few)) /
           static_cast<double>((many - few) * loop.operations);
}

int compare_all() {
    std::printf("instructions per operation   %10s %10s %8s\n", "C verbs", "rdmabuf", "ratio");
    bool as_good = true;
    for (const Loop& loop : loops) {
        const double c = per_operation(loop, false);
        const double cxx = per_operation(loop, true);
        std::printf("%-30s %8.2f %10.2f %8.2f%s\n", loop.what, c, cxx, cxx / c,
                    cxx > c ? "   more than C" : "");
        as_good = as_good && cxx <= c;
    }
    return as_good ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "Instructions per operation with rdmabuf and with plain C verbs, counted by callgrind.\n"
        "Exits with 1 when rdmabuf needs more.");
    std::string loop;
    long iterations = 1000;
    bool with_library = false;
    app.add_option("--loop", loop, "run this loop once instead of counting (callgrind runs this)");
    app.add_option("--iterations", iterations, "of that loop");
    app.add_flag("--with-library", with_library, "that loop with rdmabuf instead of C");
    CLI11_PARSE(app, argc, argv);
    try {
        return loop.empty() ? compare_all() : run_loop(loop, with_library, iterations);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "overhead: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
