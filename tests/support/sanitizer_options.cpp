// SPDX-License-Identifier: BSD-3-Clause
// Functions by which the sanitizer runtimes query the options of the test programs.
#include <unistd.h>

namespace {
const pid_t test_program = ::getpid();
}

/// Turns LeakSanitizer off in child processes. The end of a child frees its verbs objects, and
/// memory to which only threads of the parent refer would be reported as leaked.
extern "C" int __lsan_is_turned_off() { // NOLINT(bugprone-reserved-identifier)
    return ::getpid() == test_program ? 0 : 1;
}

/// By default, ThreadSanitizer waits for a second when a program ends, and ends a child that starts
/// a thread if the parent had several threads when it was forked.
extern "C" const char* __tsan_default_options() { // NOLINT(bugprone-reserved-identifier)
    return "atexit_sleep_ms=20:die_after_fork=0";
}
