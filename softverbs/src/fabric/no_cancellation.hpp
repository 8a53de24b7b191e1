// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

namespace softverbs::fabric {

/// While it exists, pthread_cancel(3) does not end the calling thread. For code that calls
/// cancellation points, such as write(2) and close(2), and that may not be unwound in the middle.
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
