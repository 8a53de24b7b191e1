// SPDX-License-Identifier: BSD-3-Clause
// What tests/gpu declares of CUDA's interface, against NVIDIA's.
#include <cuda.h>

#include "same_abi.hpp"
#include "tests/gpu/cuda_program_abi.hpp"

namespace abi = cuda_program;
using same_abi::same;

SAME_FUNCTION(abi::MemGetAllocationGranularity, cuMemGetAllocationGranularity,
              "cuMemGetAllocationGranularity");
SAME_FUNCTION(abi::MemAddressReserve, cuMemAddressReserve, "cuMemAddressReserve");
SAME_FUNCTION(abi::MemAddressFree, cuMemAddressFree, "cuMemAddressFree");
SAME_FUNCTION(abi::MemCreate, cuMemCreate, "cuMemCreate");
SAME_FUNCTION(abi::MemRelease, cuMemRelease, "cuMemRelease");
SAME_FUNCTION(abi::MemMap, cuMemMap, "cuMemMap");
SAME_FUNCTION(abi::MemUnmap, cuMemUnmap, "cuMemUnmap");
SAME_FUNCTION(abi::MemSetAccess, cuMemSetAccess, "cuMemSetAccess");
SAME_FUNCTION(abi::MemAllocManaged, cuMemAllocManaged, "cuMemAllocManaged");
SAME_FUNCTION(abi::MemAllocAsync, cuMemAllocAsync, "cuMemAllocAsync");
SAME_FUNCTION(abi::MemAllocHost, cuMemAllocHost, "cuMemAllocHost_v2");
SAME_FUNCTION(abi::MemFreeHost, cuMemFreeHost, "cuMemFreeHost");

static_assert(same(abi::allocation_pinned, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(same(abi::location_device, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(same(abi::access_read_write, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
static_assert(same(abi::granularity_minimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
static_assert(same(abi::attach_global, CU_MEM_ATTACH_GLOBAL));

static_assert(sizeof(abi::Location) == sizeof(CUmemLocation));
static_assert(offsetof(abi::Location, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(abi::AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(abi::AllocationProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(offsetof(abi::AllocationProperties, gpu_direct_rdma_capable) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(sizeof(abi::AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(abi::AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
