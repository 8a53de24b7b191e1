// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace softverbs {

/// Returns whether there are completions of the queue pair with this number that the program has
/// not polled. Returns false if there is no such queue pair, or if its state is not RTR, RTS or
/// SQD. The caller must hold Process::lock.
[[nodiscard]] bool has_unpolled_completions(std::uint32_t qp_number);

} // namespace softverbs
