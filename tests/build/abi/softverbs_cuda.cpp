// SPDX-License-Identifier: BSD-3-Clause
// Compiles where what softverbs declares of CUDA's interface agrees with NVIDIA's. There is nothing
// to run.
#include <cuda.h>

#include "same_abi.hpp"
#include "softverbs/src/objects/cuda_abi.hpp"

namespace abi = softverbs::cuda;
using same_abi::same;

SAME_FUNCTION(abi::PointerGetAttribute, cuPointerGetAttribute, "cuPointerGetAttribute");
SAME_FUNCTION(abi::DevicePrimaryContextRetain, cuDevicePrimaryCtxRetain,
              "cuDevicePrimaryCtxRetain");
SAME_FUNCTION(abi::ContextPushCurrent, cuCtxPushCurrent, "cuCtxPushCurrent_v2");
SAME_FUNCTION(abi::ContextPopCurrent, cuCtxPopCurrent, "cuCtxPopCurrent_v2");
SAME_FUNCTION(abi::ContextGetId, cuCtxGetId, "cuCtxGetId");
SAME_FUNCTION(abi::StreamCreate, cuStreamCreate, "cuStreamCreate");
SAME_FUNCTION(abi::StreamSynchronize, cuStreamSynchronize, "cuStreamSynchronize");
SAME_FUNCTION(abi::MemcpyHtoDAsync, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
SAME_FUNCTION(abi::MemcpyDtoHAsync, cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");

static_assert(sizeof(abi::Result) == sizeof(CUresult));
static_assert(sizeof(abi::Device) == sizeof(CUdevice));
static_assert(sizeof(abi::DevicePointer) == sizeof(CUdeviceptr));
static_assert(sizeof(abi::PointerAttribute) == sizeof(CUpointer_attribute));

static_assert(same(abi::success, CUDA_SUCCESS));
static_assert(same(abi::memory_type_device, CU_MEMORYTYPE_DEVICE));
static_assert(same(abi::stream_non_blocking, CU_STREAM_NON_BLOCKING));
static_assert(same(abi::PointerAttribute::context, CU_POINTER_ATTRIBUTE_CONTEXT));
static_assert(same(abi::PointerAttribute::memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
static_assert(same(abi::PointerAttribute::is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED));
static_assert(same(abi::PointerAttribute::device_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
