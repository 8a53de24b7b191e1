// SPDX-License-Identifier: BSD-3-Clause
// Compiles where our declarations of libhl-thunk.so agree with Habana's. There is nothing to run.
#include <hlthunk.h>

#include "same_abi.hpp"
#include "tests/providers/fakes/habana/functions.hpp"

namespace abi = rdmabuf::detail::habana;

using same_abi::same;

static_assert(same(abi::DeviceName::goya, HLTHUNK_DEVICE_GOYA));
static_assert(same(abi::DeviceName::gaudi, HLTHUNK_DEVICE_GAUDI));
static_assert(same(abi::DeviceName::invalid, HLTHUNK_DEVICE_INVALID));
static_assert(same(abi::DeviceName::gaudi2, HLTHUNK_DEVICE_GAUDI2));
static_assert(same(abi::DeviceName::gaudi_hl2000m, HLTHUNK_DEVICE_GAUDI_HL2000M));

THUNK_FUNCTIONS(SAME_DECLARATION)
