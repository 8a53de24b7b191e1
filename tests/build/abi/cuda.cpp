// SPDX-License-Identifier: BSD-3-Clause
// Compiles where our declarations of CUDA's interface agree with NVIDIA's. There is nothing to run.
#include <cuda.h>

#include "same_abi.hpp"
#include "tests/providers/fakes/cuda/functions.hpp"

namespace abi = rdmabuf::detail::cuda;

using same_abi::same;

// The functions of rdmabuf, softverbs, the tests and the fake driver.
CUDA_FUNCTIONS(SAME_DECLARATION)
// The header declares these versions.
static_assert(EXPORTED(cuDevicePrimaryCtxRelease) == "cuDevicePrimaryCtxRelease_v2");
static_assert(EXPORTED(cuCtxPushCurrent) == "cuCtxPushCurrent_v2");
static_assert(EXPORTED(cuCtxPopCurrent) == "cuCtxPopCurrent_v2");
static_assert(EXPORTED(cuMemGetAddressRange) == "cuMemGetAddressRange_v2");
static_assert(EXPORTED(cuMemAlloc) == "cuMemAlloc_v2");
static_assert(EXPORTED(cuMemAllocHost) == "cuMemAllocHost_v2");
static_assert(EXPORTED(cuMemFree) == "cuMemFree_v2");
static_assert(EXPORTED(cuStreamDestroy) == "cuStreamDestroy_v2");
static_assert(EXPORTED(cuMemcpyHtoD) == "cuMemcpyHtoD_v2");
static_assert(EXPORTED(cuMemcpyDtoH) == "cuMemcpyDtoH_v2");
static_assert(EXPORTED(cuMemcpyHtoDAsync) == "cuMemcpyHtoDAsync_v2");
static_assert(EXPORTED(cuMemcpyDtoHAsync) == "cuMemcpyDtoHAsync_v2");

static_assert(sizeof(abi::Result) == sizeof(CUresult));
static_assert(sizeof(abi::Device) == sizeof(CUdevice));
static_assert(sizeof(abi::DevicePointer) == sizeof(CUdeviceptr));
static_assert(sizeof(abi::MemoryType) == sizeof(CUmemorytype));
static_assert(sizeof(abi::PointerAttribute) == sizeof(CUpointer_attribute));
static_assert(sizeof(abi::DeviceAttribute) == sizeof(CUdevice_attribute));

static_assert(same(abi::success, CUDA_SUCCESS));
static_assert(same(abi::invalid_value, CUDA_ERROR_INVALID_VALUE));
static_assert(same(abi::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(abi::not_initialized, CUDA_ERROR_NOT_INITIALIZED));
static_assert(same(abi::deinitialized, CUDA_ERROR_DEINITIALIZED));
static_assert(same(abi::stub_library, CUDA_ERROR_STUB_LIBRARY));
static_assert(same(abi::no_device, CUDA_ERROR_NO_DEVICE));
static_assert(same(abi::invalid_device, CUDA_ERROR_INVALID_DEVICE));
static_assert(same(abi::invalid_context, CUDA_ERROR_INVALID_CONTEXT));
static_assert(same(abi::operating_system, CUDA_ERROR_OPERATING_SYSTEM));
static_assert(same(abi::not_found, CUDA_ERROR_NOT_FOUND));
static_assert(same(abi::context_is_destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED));
static_assert(same(abi::not_permitted, CUDA_ERROR_NOT_PERMITTED));
static_assert(same(abi::not_supported, CUDA_ERROR_NOT_SUPPORTED));

static_assert(same(abi::MemoryType::host, CU_MEMORYTYPE_HOST));
static_assert(same(abi::MemoryType::device, CU_MEMORYTYPE_DEVICE));

static_assert(same(abi::PointerAttribute::context, CU_POINTER_ATTRIBUTE_CONTEXT));
static_assert(same(abi::PointerAttribute::memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
static_assert(same(abi::PointerAttribute::sync_memops, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS));
static_assert(same(abi::PointerAttribute::buffer_id, CU_POINTER_ATTRIBUTE_BUFFER_ID));
static_assert(same(abi::PointerAttribute::is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED));
static_assert(same(abi::PointerAttribute::device_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
static_assert(same(abi::PointerAttribute::range_start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR));
static_assert(same(abi::PointerAttribute::range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE));
static_assert(same(abi::PointerAttribute::mempool_handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE));
static_assert(same(abi::PointerAttribute::is_gpu_direct_rdma_capable,
                   CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE));

static_assert(same(abi::DeviceAttribute::integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED));
static_assert(same(abi::DeviceAttribute::gpu_direct_rdma_supported,
                   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED));
static_assert(same(abi::DeviceAttribute::gpu_direct_rdma_flush_writes_options,
                   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS));
static_assert(same(abi::DeviceAttribute::gpu_direct_rdma_writes_ordering,
                   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING));

static_assert(same(abi::dma_buf_fd, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD));
static_assert(abi::no_device_ordinal == CU_DEVICE_CPU);
static_assert(same(abi::stream_non_blocking, CU_STREAM_NON_BLOCKING));
static_assert(same(abi::capture_mode_relaxed, CU_STREAM_CAPTURE_MODE_RELAXED));
static_assert(same(abi::stream_capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
static_assert(same(abi::stream_capture_implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
static_assert(same(abi::flush_option_host, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST));
static_assert(same(abi::flush_target_current_context,
                   CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX));
static_assert(same(abi::to_owner, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
static_assert(same(abi::to_all_devices, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES));
static_assert(same(abi::to_owner, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER));
static_assert(same(abi::to_all_devices, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES));

// As far as the header that is installed knows them.
static_assert(CUDA_VERSION >= 11070, "older ones do not declare what is used here");
static_assert(same(abi::DeviceAttribute::pageable_memory_access_uses_host_page_tables,
                   CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES));
static_assert(same(abi::DeviceAttribute::dma_buf_supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED));
#if CUDA_VERSION >= 12080
static_assert(same(abi::mapping_type_pcie, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE));
#endif
#if CUDA_VERSION >= 13000
static_assert(same(abi::DeviceAttribute::host_alloc_dma_buf_supported,
                   CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED));
#endif
