// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

namespace softverbs::fabric {

/// Disables pthread_cancel(3) for this thread while the object exists. Needed around code that
/// calls cancellation points, such as write(2), but must not be cancelled.
class NoCancellation {
  public:
    NoCancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NoCancellation() { ::pthread_setcancelstate(before_, nullptr); }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

} // namespace softverbs::fabric
