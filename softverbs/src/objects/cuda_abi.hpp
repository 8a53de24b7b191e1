// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// The types, constants and functions of the CUDA driver API that softverbs uses. tests/build/abi
/// compares them with <cuda.h> if that header is installed. softverbs looks up the functions by the
/// names that the library exports. Some differ from the documented names: <cuda.h> defines
/// cuCtxPushCurrent as cuCtxPushCurrent_v2.
namespace softverbs::cuda {

using Result = int; // CUresult
inline constexpr Result success = 0;

using Device = int;                    // CUdevice
using DevicePointer = std::uint64_t;   // CUdeviceptr
using Context = struct OpaqueContext*; // CUcontext
using Stream = struct OpaqueStream*;   // CUstream

/// A value of CUmemorytype.
inline constexpr unsigned memory_type_device = 2;
/// Values of CUpointer_attribute.
enum class PointerAttribute : int {
    context = 1,
    memory_type = 2,
    is_managed = 8,
    device_ordinal = 9,
};
/// A value of CUstream_flags.
inline constexpr unsigned stream_non_blocking = 1;

using PointerGetAttribute = Result(void*, PointerAttribute, DevicePointer);
using DevicePrimaryContextRetain = Result(Context*, Device);
using ContextPushCurrent = Result(Context);
using ContextPopCurrent = Result(Context*);
using ContextGetId = Result(Context, unsigned long long*); // since CUDA 12.0
using StreamCreate = Result(Stream*, unsigned flags);
using StreamSynchronize = Result(Stream);
using MemcpyHtoDAsync = Result(DevicePointer, const void*, std::size_t, Stream);
using MemcpyDtoHAsync = Result(void*, DevicePointer, std::size_t, Stream);

} // namespace softverbs::cuda
