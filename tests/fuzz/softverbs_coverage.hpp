// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softverbs::fuzz {

/// Clears the coverage counters of softverbs, so that libFuzzer keeps an input only if it covers
/// something new in the transport.
void clear_coverage();

} // namespace softverbs::fuzz
