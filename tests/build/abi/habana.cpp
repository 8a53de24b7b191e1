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

#include "providers/habana/habana_abi.hpp"
#include "same_abi.hpp"

namespace abi = rdmabuf::detail::habana;

using same_abi::same;

static_assert(same(abi::DeviceName::goya, HLTHUNK_DEVICE_GOYA));
static_assert(same(abi::DeviceName::gaudi, HLTHUNK_DEVICE_GAUDI));
static_assert(same(abi::DeviceName::invalid, HLTHUNK_DEVICE_INVALID));
static_assert(same(abi::DeviceName::gaudi2, HLTHUNK_DEVICE_GAUDI2));
static_assert(same(abi::DeviceName::gaudi_hl2000m, HLTHUNK_DEVICE_GAUDI_HL2000M));

SAME_FUNCTION(abi::GetDeviceName, hlthunk_get_device_name_from_fd,
              "hlthunk_get_device_name_from_fd");
SAME_FUNCTION(abi::GetPciBusId, hlthunk_get_pci_bus_id_from_fd, "hlthunk_get_pci_bus_id_from_fd");
SAME_FUNCTION(abi::OpenControl, hlthunk_open_control, "hlthunk_open_control");
SAME_FUNCTION(abi::Close, hlthunk_close, "hlthunk_close");
SAME_FUNCTION(abi::ExportMemory, hlthunk_device_memory_export_dmabuf_fd,
              "hlthunk_device_memory_export_dmabuf_fd");
SAME_FUNCTION(abi::ExportMappedMemory, hlthunk_device_mapped_memory_export_dmabuf_fd,
              "hlthunk_device_mapped_memory_export_dmabuf_fd");

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

SAME_FUNCTION(abi::Initialize, synInitialize, "synInitialize");
SAME_FUNCTION(abi::DeviceAcquire, synDeviceAcquire, "synDeviceAcquire");
SAME_FUNCTION(abi::DeviceRelease, synDeviceRelease, "synDeviceRelease");
SAME_FUNCTION(abi::DeviceGetInfo, synDeviceGetInfoV2, "synDeviceGetInfoV2");
SAME_FUNCTION(abi::DeviceMalloc, synDeviceMalloc, "synDeviceMalloc");
SAME_FUNCTION(abi::DeviceFree, synDeviceFree, "synDeviceFree");
SAME_FUNCTION(abi::HostMalloc, synHostMalloc, "synHostMalloc");
SAME_FUNCTION(abi::HostFree, synHostFree, "synHostFree");
SAME_FUNCTION(abi::StreamCreate, synStreamCreateGeneric, "synStreamCreateGeneric");
SAME_FUNCTION(abi::StreamDestroy, synStreamDestroy, "synStreamDestroy");
SAME_FUNCTION(abi::StreamSynchronize, synStreamSynchronize, "synStreamSynchronize");
SAME_FUNCTION(abi::MemCopyAsync, synMemCopyAsync, "synMemCopyAsync");
#endif
