// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "rocm/rocm_abi.hpp"

// Functions of the HSA runtime that a program calls.
extern "C" {
extern rdmabuf::detail::rocm::Init hsa_init;
extern rdmabuf::detail::rocm::ShutDown hsa_shut_down;
}
