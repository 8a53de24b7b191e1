// SPDX-License-Identifier: BSD-3-Clause
// Used when the owners of C objects destroy them: the report of a failure, and the number of
// fork(2) calls.
#include <pthread.h>
#include <string.h>

#include <atomic>
#include <cstdio>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf {
namespace {

void print_teardown_failure(const char* function, int error) noexcept {
    // This function allocates no memory: a destructor may run because memory is exhausted.
    const char* const name = strerrorname_np(error);
    std::fprintf(stderr, "rdmabuf: %s failed while freeing a resource: errno %d (%s)\n", function,
                 error, name != nullptr ? name : "?");
}

std::atomic<TeardownFailureHandler> teardown_failure_handler{&print_teardown_failure};

// The number of fork(2) calls that created this process: 0 in the started program, 1 in its child.
// In the child, count_fork() runs before fork(2) returns. The child has one thread at that time: no
// atomic is needed.
unsigned generation = 0;

void count_fork() {
    ++generation;
}

/// Registers the fork handler when the library is loaded, before any object is created.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, count_fork);

} // namespace

TeardownFailureHandler set_teardown_failure_handler(TeardownFailureHandler handler) noexcept {
    return teardown_failure_handler.exchange(handler != nullptr ? handler
                                                                : &print_teardown_failure);
}

void detail::report_teardown_failure(const char* function, int error) noexcept {
    teardown_failure_handler.load()(function, error);
}

unsigned detail::fork_generation() noexcept {
    return generation;
}

} // namespace rdmabuf
