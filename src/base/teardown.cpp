// SPDX-License-Identifier: BSD-3-Clause
// This file reports failures that a function cannot throw, such as those of destructors, and counts
// the calls of fork(2).
#include <pthread.h>

#include <atomic>
#include <cstdio>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

#include "base/text.hpp"

namespace rdmabuf {
namespace {

void print_teardown_failure(const char* function, int error) noexcept {
    // This function allocates no memory, because memory may be exhausted when a destructor runs.
    const char* const name = detail::errno_name(error);
    std::fprintf(stderr, "rdmabuf: %s failed while freeing a resource: errno %d (%s)\n", function,
                 error, name != nullptr ? name : "?");
}

std::atomic<TeardownFailureHandler> teardown_failure_handler{&print_teardown_failure};

void count_fork() {
    ++detail::fork_count;
}

/// Initialized when the library is loaded or, if it is linked statically, with the static objects
/// of the program. From then on, fork(2) calls count_fork() in the child process.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, count_fork);

} // namespace

TeardownFailureHandler set_teardown_failure_handler(TeardownFailureHandler handler) noexcept {
    return teardown_failure_handler.exchange(handler != nullptr ? handler
                                                                : &print_teardown_failure);
}

void detail::report_teardown_failure(const char* function, int error) noexcept {
    teardown_failure_handler.load()(function, error);
}

// 0 in the process that loaded the library, 1 in its child processes, 2 in their child processes.
// The variable is not atomic, because a child process has only one thread when count_fork() changes
// the variable.
unsigned detail::fork_count = 0;

unsigned detail::fork_generation() noexcept {
    return fork_count;
}

} // namespace rdmabuf
