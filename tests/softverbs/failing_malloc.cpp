// SPDX-License-Identifier: BSD-3-Clause
#include "failing_malloc.hpp"

#include <cerrno>
#include <cstdlib>

std::atomic<bool (*)()> softverbs_test::malloc_fails{nullptr};

// The name by which glibc's own malloc can be called if a program replaces it.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" void* __libc_malloc(std::size_t size);

extern "C" void* malloc(std::size_t size) noexcept {
    auto* const fails = softverbs_test::malloc_fails.load();
    if (fails != nullptr && fails()) {
        errno = ENOMEM;
        return nullptr;
    }
    return __libc_malloc(size);
}
