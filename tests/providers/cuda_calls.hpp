// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include "cuda/cuda_driver.hpp"
#include "fake_driver.hpp"

// Functions of the CUDA driver that a program calls.
extern "C" {
extern rdmabuf::detail::cuda::Init cuInit;
extern rdmabuf::detail::cuda::ContextGetCurrent cuCtxGetCurrent;
extern rdmabuf::detail::cuda::ContextPushCurrent cuCtxPushCurrent_v2;
extern rdmabuf::detail::cuda::ContextPopCurrent cuCtxPopCurrent_v2;
extern rdmabuf::detail::cuda::DevicePrimaryContextRetain cuDevicePrimaryCtxRetain;
extern rdmabuf::detail::cuda::DevicePrimaryContextRelease cuDevicePrimaryCtxRelease_v2;
extern rdmabuf::detail::cuda::ThreadExchangeStreamCaptureMode cuThreadExchangeStreamCaptureMode;
}

namespace rdmabuf::testing {

inline int number(detail::cuda::DeviceAttribute attribute) {
    return static_cast<int>(attribute);
}

inline detail::cuda::Context current_context() {
    detail::cuda::Context context = nullptr;
    cuCtxGetCurrent(&context);
    return context;
}

inline detail::cuda::Context program_context(unsigned device) {
    return static_cast<detail::cuda::Context>(fake_driver::program_context(device));
}

/// Makes the context of a device current, as a program may do.
class CurrentContext {
  public:
    explicit CurrentContext(unsigned device) : context_(program_context(device)) {
        EXPECT_EQ(cuCtxPushCurrent_v2(context_), detail::cuda::success);
    }
    ~CurrentContext() {
        EXPECT_EQ(current_context(), context_);
        detail::cuda::Context popped = nullptr;
        EXPECT_EQ(cuCtxPopCurrent_v2(&popped), detail::cuda::success);
    }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

  private:
    detail::cuda::Context context_;
};

} // namespace rdmabuf::testing
