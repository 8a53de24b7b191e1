// SPDX-License-Identifier: BSD-3-Clause
#include <pthread.h>

#include <rdmabuf/detail/fork.hpp>

namespace rdmabuf::detail {
namespace {

// Written in a child before fork(2) returns there, when it has one thread: no atomic is needed.
unsigned generation = 0;

void count_fork() {
    ++generation;
}

/// Registers the handler when the library is loaded, which is before any object is created.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, count_fork);

} // namespace

unsigned fork_generation() noexcept {
    return generation;
}

} // namespace rdmabuf::detail
