// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace softverbs {

/// Returns whether a completion queue contains completions of this queue pair that the program has
/// not polled. Returns false if no queue pair has the number, or if it is not in a state in which
/// it receives messages. The caller holds Process::lock.
[[nodiscard]] bool has_unpolled_completions(std::uint32_t qp_number);

} // namespace softverbs
