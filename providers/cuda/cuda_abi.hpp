// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// Declares the part of the CUDA driver's interface that rdmabuf uses, so that the build needs no
/// CUDA. The values are those of <cuda.h>. Where <cuda.h> is installed, tests/build/abi checks that
/// the values agree. The function types are those of the library's symbols, for example
/// cuMemAlloc_v2, for which <cuda.h> defines the macro cuMemAlloc.
namespace rdmabuf::detail::cuda {

using Result = int; // CUresult
inline constexpr Result success = 0;
inline constexpr Result invalid_value = 1;
inline constexpr Result out_of_memory = 2;
inline constexpr Result not_initialized = 3;
inline constexpr Result deinitialized = 4;
inline constexpr Result stub_library = 34;
inline constexpr Result no_device = 100;
inline constexpr Result invalid_device = 101;
inline constexpr Result invalid_context = 201;
inline constexpr Result operating_system = 304;
inline constexpr Result not_found = 500;
inline constexpr Result context_is_destroyed = 709;
inline constexpr Result not_permitted = 800;
inline constexpr Result not_supported = 801;
inline constexpr Result stream_capture_unsupported = 900;
inline constexpr Result stream_capture_implicit = 906;

using Device = int;                    // CUdevice
using DevicePointer = std::uint64_t;   // CUdeviceptr
using Context = struct OpaqueContext*; // CUcontext
using Stream = struct OpaqueStream*;   // CUstream

/// CUmemorytype
enum class MemoryType : unsigned { none = 0, host = 1, device = 2 };

/// CUpointer_attribute
enum class PointerAttribute : int {
    context = 1,
    memory_type = 2,
    sync_memops = 6,
    buffer_id = 7,
    is_managed = 8,
    device_ordinal = 9,
    range_start = 11,
    range_size = 12,
    is_gpu_direct_rdma_capable = 15,
    mempool_handle = 17,
    mapping_size = 18,
    mapping_base_address = 19,
};

/// CUdevice_attribute
enum class DeviceAttribute : int {
    integrated = 18,
    pageable_memory_access_uses_host_page_tables = 100,
    gpu_direct_rdma_supported = 116,
    gpu_direct_rdma_flush_writes_options = 117,
    gpu_direct_rdma_writes_ordering = 118,
    dma_buf_supported = 124,
    host_alloc_dma_buf_supported = 146,
};

/// Has the value of CU_DEVICE_CPU: the device ordinal that the driver reports for host memory of
/// cuMemCreate and of host memory pools. Functions that take a device refuse this value.
inline constexpr Device no_device_ordinal = -1;

/// Has the value of CU_STREAM_NON_BLOCKING: the stream does not wait for the legacy stream.
inline constexpr unsigned stream_non_blocking = 1;
/// Has the value of CU_STREAM_CAPTURE_MODE_RELAXED.
inline constexpr int capture_mode_relaxed = 2;

/// Has the value of CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
inline constexpr int dma_buf_fd = 1;
/// Has the value of CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE.
inline constexpr unsigned long long mapping_type_pcie = 1;

/// Has the value of CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST: the host can flush RDMA writes.
inline constexpr int flush_option_host = 1;
/// Has the value of CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX.
inline constexpr int flush_target_current_context = 0;
/// The constants `to_owner` and `to_all_devices` have values of CUflushGPUDirectRDMAWritesScope.
/// The type CUGPUDirectRDMAWritesOrdering has the same values.
inline constexpr int to_owner = 100;
inline constexpr int to_all_devices = 200;

using GetErrorName = Result(Result, const char**);
using Init = Result(unsigned flags);
using DriverGetVersion = Result(int*);
using DeviceGetCount = Result(int*);
using DeviceGet = Result(Device*, int ordinal);
using DeviceGetAttribute = Result(int*, DeviceAttribute, Device);
using DeviceGetPciBusId = Result(char*, int length, Device);
using DevicePrimaryContextRetain = Result(Context*, Device);
using DevicePrimaryContextRelease = Result(Device);
using DevicePrimaryContextGetState = Result(Device, unsigned* flags, int* active);
using ContextGetCurrent = Result(Context*);
using ContextPushCurrent = Result(Context);
using ContextPopCurrent = Result(Context*);
using PointerGetAttribute = Result(void*, PointerAttribute, DevicePointer);
using PointerGetAttributes = Result(unsigned, PointerAttribute*, void**, DevicePointer);
using PointerSetAttribute = Result(const void*, PointerAttribute, DevicePointer);
using MemGetAddressRange = Result(DevicePointer*, std::size_t*, DevicePointer);
using MemGetHandleForAddressRange = Result(void*, DevicePointer, std::size_t, int type,
                                           unsigned long long flags);
using FlushGpuDirectRdmaWrites = Result(int target, int scope);
using MemAlloc = Result(DevicePointer*, std::size_t);
using MemFree = Result(DevicePointer);
using StreamCreate = Result(Stream*, unsigned flags);
using StreamDestroy = Result(Stream);
using StreamSynchronize = Result(Stream);
using MemcpyHtoDAsync = Result(DevicePointer, const void*, std::size_t, Stream);
using MemcpyDtoHAsync = Result(void*, DevicePointer, std::size_t, Stream);
using ThreadExchangeStreamCaptureMode = Result(int* mode);

} // namespace rdmabuf::detail::cuda
