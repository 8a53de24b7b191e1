// SPDX-License-Identifier: BSD-3-Clause
// Compiles where our declarations of Habana's two libraries agree with theirs. There is nothing to
// run.
#include <hlthunk.h>

// Installed with the other, or not.
#if __has_include(<synapse_api.h>)
#include <synapse_api.h>
#include <synapse_common_types.h>
#define HAVE_SYNAPSE 1
#endif

#include <cstddef>

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

#ifdef HAVE_SYNAPSE
static_assert(same(abi::success, synSuccess));
static_assert(same(abi::invalid_argument, synInvalidArgument));
static_assert(same(abi::out_of_host_memory, synOutOfHostMemory));
static_assert(same(abi::out_of_device_memory, synOutOfDeviceMemory));
static_assert(same(abi::object_already_initialized, synObjectAlreadyInitialized));
static_assert(same(abi::no_device_found, synNoDeviceFound));
static_assert(same(abi::failed_to_allocate_device_memory, synFailedToAllocateDeviceMemory));
static_assert(same(abi::not_enough_devices_found, synFailedNotEnoughDevicesFound));
static_assert(same(abi::device_reset, synDeviceReset));
static_assert(same(abi::unsupported, synUnsupported));
static_assert(same(abi::device_already_acquired, synDeviceAlreadyAcquired));
static_assert(same(abi::busy, synBusy));
static_assert(same(abi::failed, synFail));
static_assert(same(abi::uninitialized, synUninitialized));
static_assert(same(abi::already_initialized, synAlreadyInitialized));
static_assert(same(abi::Direction::host_to_device, HOST_TO_DRAM));
static_assert(same(abi::Direction::device_to_host, DRAM_TO_HOST));

static_assert(sizeof(abi::DeviceInfo) == sizeof(synDeviceInfoV2));
static_assert(offsetof(abi::DeviceInfo, dram_size) == offsetof(synDeviceInfoV2, dramSize));
static_assert(offsetof(abi::DeviceInfo, fd) == offsetof(synDeviceInfoV2, fd));
static_assert(offsetof(abi::DeviceInfo, global_hbm_base_address) ==
              offsetof(synDeviceInfoV2, globalHbmBaseAddress));

SYNAPSE_FUNCTIONS(SAME_DECLARATION)
#endif
