// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "providers/cuda/cuda_abi.hpp"

/// What a CUDA program calls to have memory of every kind, besides what rdmabuf itself calls;
/// tests/build/abi compares it with <cuda.h> where that is installed.
namespace cuda_program {

using rdmabuf::detail::cuda::DevicePointer;
using rdmabuf::detail::cuda::Result;

/// CUmemAllocationType, CUmemLocationType, CUmemAccess_flags, CUmemAllocationGranularity_flags,
/// CUmemAttach_flags
inline constexpr int allocation_pinned = 1;
inline constexpr int location_device = 1;
inline constexpr int location_host_numa = 3; // since CUDA 12.2
inline constexpr int access_read_write = 3;
inline constexpr int granularity_minimum = 0;
inline constexpr unsigned attach_global = 1;

/// CUmemLocation
struct Location {
    int type;
    int id;
};

/// CUmemAllocationProp
struct AllocationProperties {
    int type;
    int requested_handle_types;
    Location location;
    void* win32_handle_meta_data;
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4]; // NOLINT(modernize-avoid-c-arrays): as the driver has it
};

/// CUmemAccessDesc
struct AccessDescription {
    Location location;
    int flags;
};

using AllocationHandle = unsigned long long; // CUmemGenericAllocationHandle
using Stream = struct OpaqueStream*;         // CUstream

using MemGetAllocationGranularity = Result(std::size_t*, const AllocationProperties*, int option);
using MemAddressReserve = Result(DevicePointer*, std::size_t size, std::size_t alignment,
                                 DevicePointer wanted, unsigned long long flags);
using MemAddressFree = Result(DevicePointer, std::size_t);
using MemCreate = Result(AllocationHandle*, std::size_t, const AllocationProperties*,
                         unsigned long long flags);
using MemRelease = Result(AllocationHandle);
using MemMap = Result(DevicePointer, std::size_t size, std::size_t offset, AllocationHandle,
                      unsigned long long flags);
using MemUnmap = Result(DevicePointer, std::size_t);
using MemSetAccess = Result(DevicePointer, std::size_t, const AccessDescription*, std::size_t);
using MemAllocManaged = Result(DevicePointer*, std::size_t, unsigned flags);
using MemAllocAsync = Result(DevicePointer*, std::size_t, Stream);
using MemAllocHost = Result(void**, std::size_t);
using MemFreeHost = Result(void*);
using StreamSynchronize = Result(Stream);
using MemcpyHtoD = Result(DevicePointer, const void*, std::size_t);
using MemcpyDtoH = Result(void*, DevicePointer, std::size_t);

} // namespace cuda_program
