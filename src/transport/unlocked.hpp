// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mutex>

namespace rdmabuf::transport::detail {

/// Unlocks EndpointOptions::mutex, if there is one, and locks it again in the destructor.
class Unlocked {
  public:
    explicit Unlocked(std::mutex* mutex) : mutex_(mutex) {
        if (mutex_ != nullptr) {
            mutex_->unlock();
        }
    }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() {
        if (mutex_ != nullptr) {
            mutex_->lock();
        }
    }

  private:
    std::mutex* mutex_;
};

} // namespace rdmabuf::transport::detail
