// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>

namespace softverbs_test {

/// If it is set, malloc(3) asks it in each call of the program and of its libraries, and fails if
/// it returns true. libsoftverbs.so contains the operator new of its own C++ library, which calls
/// malloc(3).
extern std::atomic<bool (*)()> malloc_fails;

} // namespace softverbs_test
