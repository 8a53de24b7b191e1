// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Clears the coverage counters of softverbs, so that libFuzzer keeps an input only if it covers
/// something new in the transport. In C: softverbs exports no name of C++.
extern "C" void softverbs_clear_coverage();
