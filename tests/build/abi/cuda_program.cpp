// SPDX-License-Identifier: BSD-3-Clause
// Compares the constants and structures of tests/gpu with those of <cuda.h>. cuda.cpp compares the
// functions.
#include <cuda.h>

#include "same_abi.hpp"
#include "tests/gpu/cuda_program_abi.hpp"

namespace abi = cuda_program;
using same_abi::same;

static_assert(same(abi::allocation_pinned, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(same(abi::location_device, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(same(abi::location_host_numa, CU_MEM_LOCATION_TYPE_HOST_NUMA));
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
