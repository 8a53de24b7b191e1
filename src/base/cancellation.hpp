// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

namespace rdmabuf::detail {

/// Postpones pthread_cancel(3) for this thread while the object exists. A thread that is cancelled
/// in a noexcept function, or in a function that catches all exceptions, ends the process.
class CancellationDisabled {
  public:
    CancellationDisabled() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~CancellationDisabled() { ::pthread_setcancelstate(before_, nullptr); }
    CancellationDisabled(const CancellationDisabled&) = delete;
    CancellationDisabled& operator=(const CancellationDisabled&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

} // namespace rdmabuf::detail
