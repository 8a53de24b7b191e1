// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <latch>

namespace rdmabuf::testing {

/// If true, the library's next search for a symbol waits for `searches_end`.
extern std::atomic<bool> searches_wait;
/// The number of searches that have begun to wait.
extern std::atomic<unsigned> waiting_searches;
extern std::latch searches_end;

} // namespace rdmabuf::testing
