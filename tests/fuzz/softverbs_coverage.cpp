// SPDX-License-Identifier: BSD-3-Clause
#include "softverbs_coverage.hpp"

#include <algorithm>

// The linker defines these symbols: the counters of this shared library.
extern "C" {
[[gnu::visibility("hidden")]] extern unsigned char __start___sancov_cntrs[]; // NOLINT
[[gnu::visibility("hidden")]] extern unsigned char __stop___sancov_cntrs[];  // NOLINT
}

void softverbs_clear_coverage() {
    std::fill(__start___sancov_cntrs, __stop___sancov_cntrs, static_cast<unsigned char>(0));
}
