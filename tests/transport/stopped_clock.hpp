// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/transport/detail/clock.hpp>

#include "manual_clock.hpp"

namespace rdmabuf::testing {

/// Stops the clocks of softverbs and of the transport while the object exists. Both then show
/// softverbs_now().
class StoppedClock : public softverbs_test::ManualClock {
  public:
    StoppedClock() {
        transport::detail::test_clock = [] { return static_cast<std::int64_t>(softverbs_now()); };
    }
    ~StoppedClock() { transport::detail::test_clock = nullptr; }
    StoppedClock(const StoppedClock&) = delete;
    StoppedClock& operator=(const StoppedClock&) = delete;

    /// Lets the devices do the work that is due now.
    static void settle() { softverbs_test::settle(); }
};

} // namespace rdmabuf::testing
