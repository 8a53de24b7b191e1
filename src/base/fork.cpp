// SPDX-License-Identifier: BSD-3-Clause
#include <pthread.h>

#include <rdmabuf/detail/fork.hpp>

namespace rdmabuf::detail {
namespace {

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

unsigned fork_generation() noexcept {
    return generation;
}

} // namespace rdmabuf::detail
