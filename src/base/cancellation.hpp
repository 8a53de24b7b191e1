// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

namespace rdmabuf::detail {

/// Postpones pthread_cancel(3) for this thread while the object exists. glibc implements
/// cancellation as an exception. This exception ends the process if it reaches a noexcept function,
/// or a `catch (...)` that does not rethrow it.
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
