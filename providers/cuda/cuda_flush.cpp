// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/cuda_flush.hpp"

#include <cerrno>
#include <string>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/cuda.hpp>

#include "cuda/cuda_pointer.hpp"

namespace rdmabuf {
namespace detail::cuda {
namespace {

constexpr const char* function = "cuFlushGPUDirectRDMAWrites";

} // namespace

Flush flush_needed(const Driver& driver, Device device, int scope) {
    // The driver uses the same numbers for the ordering that the device guarantees and for `scope`.
    // The ordering is `to_owner` if only the device itself receives the writes in order, and has
    // the higher value `to_all_devices` if all devices do. No flush is needed if the ordering is at
    // least `scope`.
    if (driver.attribute(DeviceAttribute::gpu_direct_rdma_writes_ordering, device) >= scope) {
        return Flush::unnecessary;
    }
    const int options =
        driver.attribute(DeviceAttribute::gpu_direct_rdma_flush_writes_options, device);
    return (options & flush_option_host) != 0 ? Flush::necessary : Flush::impossible;
}

void flush(const Driver& driver, int scope) {
    driver.check(
        driver.functions().flush_gpu_direct_rdma_writes(flush_target_current_context, scope),
        function, "the flush failed, so RDMA writes may not be visible to the device yet");
}

} // namespace detail::cuda

bool flush_cuda_writes(std::uintptr_t address, CudaWriteScope scope) {
    using namespace detail::cuda;
    const Driver& driver = *Driver::of_process().load().value();
    const Pointer pointer = require_pointer(driver, address);
    const int wanted = scope == CudaWriteScope::owner ? to_owner : to_all_devices;
    switch (flush_needed(driver, pointer.device, wanted)) {
        case Flush::unnecessary:
            return false;
        case Flush::impossible:
            throw Error(EOPNOTSUPP, function,
                        "device " + std::to_string(pointer.device) +
                            " does not support flushes of RDMA writes by the host: flush in the "
                            "stream, with CU_STREAM_WAIT_VALUE_FLUSH, or read the memory back "
                            "through the NIC that wrote it");
        case Flush::necessary:
            break;
    }
    const PointerContext current(driver, pointer);
    flush(driver, wanted);
    return true;
}

} // namespace rdmabuf
