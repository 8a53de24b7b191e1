// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "providers/cuda/cuda_abi.hpp"
#include "softverbs/src/objects/cuda_abi.hpp"
#include "tests/gpu/cuda_program_abi.hpp"

// The functions of the fake libcuda.so.1. tests/build/abi compares their types with <cuda.h>.

/// Calls FUNCTION(namespace, type, exported name) for each function.
#define CUDA_FUNCTIONS(FUNCTION)                                                                \
    FUNCTION(rdmabuf::detail::cuda, GetErrorName, cuGetErrorName)                               \
    FUNCTION(rdmabuf::detail::cuda, Init, cuInit)                                               \
    FUNCTION(rdmabuf::detail::cuda, DriverGetVersion, cuDriverGetVersion)                       \
    FUNCTION(rdmabuf::detail::cuda, DeviceGetCount, cuDeviceGetCount)                           \
    FUNCTION(rdmabuf::detail::cuda, DeviceGet, cuDeviceGet)                                     \
    FUNCTION(rdmabuf::detail::cuda, DeviceGetAttribute, cuDeviceGetAttribute)                   \
    FUNCTION(rdmabuf::detail::cuda, DeviceGetPciBusId, cuDeviceGetPCIBusId)                     \
    FUNCTION(rdmabuf::detail::cuda, DevicePrimaryContextRetain, cuDevicePrimaryCtxRetain)       \
    FUNCTION(rdmabuf::detail::cuda, DevicePrimaryContextRelease, cuDevicePrimaryCtxRelease_v2)  \
    FUNCTION(rdmabuf::detail::cuda, DevicePrimaryContextGetState, cuDevicePrimaryCtxGetState)   \
    FUNCTION(rdmabuf::detail::cuda, ContextGetCurrent, cuCtxGetCurrent)                         \
    FUNCTION(rdmabuf::detail::cuda, ContextPushCurrent, cuCtxPushCurrent_v2)                    \
    FUNCTION(rdmabuf::detail::cuda, ContextPopCurrent, cuCtxPopCurrent_v2)                      \
    FUNCTION(rdmabuf::detail::cuda, PointerGetAttribute, cuPointerGetAttribute)                 \
    FUNCTION(rdmabuf::detail::cuda, PointerGetAttributes, cuPointerGetAttributes)               \
    FUNCTION(rdmabuf::detail::cuda, PointerSetAttribute, cuPointerSetAttribute)                 \
    FUNCTION(rdmabuf::detail::cuda, MemGetAddressRange, cuMemGetAddressRange_v2)                \
    FUNCTION(rdmabuf::detail::cuda, MemGetHandleForAddressRange, cuMemGetHandleForAddressRange) \
    FUNCTION(rdmabuf::detail::cuda, FlushGpuDirectRdmaWrites, cuFlushGPUDirectRDMAWrites)       \
    FUNCTION(rdmabuf::detail::cuda, MemAlloc, cuMemAlloc_v2)                                    \
    FUNCTION(rdmabuf::detail::cuda, MemFree, cuMemFree_v2)                                      \
    FUNCTION(rdmabuf::detail::cuda, StreamDestroy, cuStreamDestroy_v2)                          \
    FUNCTION(rdmabuf::detail::cuda, ThreadExchangeStreamCaptureMode,                            \
             cuThreadExchangeStreamCaptureMode)                                                 \
    FUNCTION(cuda_program, MemcpyHtoD, cuMemcpyHtoD_v2)                                         \
    FUNCTION(cuda_program, MemcpyDtoH, cuMemcpyDtoH_v2)                                         \
    FUNCTION(softverbs::cuda, ContextGetId, cuCtxGetId)                                         \
    FUNCTION(softverbs::cuda, StreamCreate, cuStreamCreate)                                     \
    FUNCTION(softverbs::cuda, StreamSynchronize, cuStreamSynchronize)                           \
    FUNCTION(softverbs::cuda, MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                            \
    FUNCTION(softverbs::cuda, MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                            \
    FUNCTION(cuda_program, MemGetAllocationGranularity, cuMemGetAllocationGranularity)          \
    FUNCTION(cuda_program, MemAddressReserve, cuMemAddressReserve)                              \
    FUNCTION(cuda_program, MemAddressFree, cuMemAddressFree)                                    \
    FUNCTION(cuda_program, MemCreate, cuMemCreate)                                              \
    FUNCTION(cuda_program, MemRelease, cuMemRelease)                                            \
    FUNCTION(cuda_program, MemMap, cuMemMap)                                                    \
    FUNCTION(cuda_program, MemUnmap, cuMemUnmap)                                                \
    FUNCTION(cuda_program, MemSetAccess, cuMemSetAccess)                                        \
    FUNCTION(cuda_program, MemAllocManaged, cuMemAllocManaged)                                  \
    FUNCTION(cuda_program, MemAllocAsync, cuMemAllocAsync)                                      \
    FUNCTION(cuda_program, MemAllocHost, cuMemAllocHost_v2)                                     \
    FUNCTION(cuda_program, MemFreeHost, cuMemFreeHost)
