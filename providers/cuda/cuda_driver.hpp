// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/error.hpp>

#include "common/process_driver.hpp"
#include "cuda/cuda_abi.hpp"

namespace rdmabuf::detail::cuda {

/// Holds pointers to the functions of the driver. A pointer is null if the library lacks the
/// function.
struct Functions {
    GetErrorName* get_error_name = nullptr;
    Init* init = nullptr;
    DriverGetVersion* driver_get_version = nullptr;
    DeviceGetCount* device_get_count = nullptr;
    DeviceGet* device_get = nullptr;
    DeviceGetAttribute* device_get_attribute = nullptr;
    DeviceGetPciBusId* device_get_pci_bus_id = nullptr;
    DevicePrimaryContextRetain* device_primary_context_retain = nullptr;
    DevicePrimaryContextRelease* device_primary_context_release = nullptr;
    DevicePrimaryContextGetState* device_primary_context_get_state = nullptr;
    ContextGetCurrent* context_get_current = nullptr;
    ContextPushCurrent* context_push_current = nullptr;
    ContextPopCurrent* context_pop_current = nullptr;
    PointerGetAttribute* pointer_get_attribute = nullptr;
    PointerGetAttributes* pointer_get_attributes = nullptr;
    PointerSetAttribute* pointer_set_attribute = nullptr;
    MemGetAddressRange* mem_get_address_range = nullptr;
    MemGetHandleForAddressRange* mem_get_handle_for_address_range = nullptr;
    FlushGpuDirectRdmaWrites* flush_gpu_direct_rdma_writes = nullptr;
    MemAlloc* mem_alloc = nullptr;
    MemFree* mem_free = nullptr;
    StreamCreate* stream_create = nullptr;
    StreamDestroy* stream_destroy = nullptr;
    StreamSynchronize* stream_synchronize = nullptr;
    MemcpyHtoDAsync* memcpy_h_to_d_async = nullptr;
    MemcpyDtoHAsync* memcpy_d_to_h_async = nullptr;
    /// Available since CUDA 10.1; null for older drivers.
    ThreadExchangeStreamCaptureMode* thread_exchange_stream_capture_mode = nullptr;
};

/// Holds the functions of the loaded CUDA driver. Loading does not initialise CUDA, because the
/// initialisation has side effects in the process.
class Driver : public DriverBase<Driver, Functions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<Functions> description();

    /// Initialises CUDA in this process, if CUDA is not initialised. @return an error if the
    /// initialisation fails
    [[nodiscard]] std::optional<ErrorInfo> initialise() const;

    /// Returns the name and the value of a result: "CUDA_ERROR_NOT_SUPPORTED (801)".
    [[nodiscard]] std::string name_of(Result result) const;
    /// Throws an Error for a failed call.
    /// @param hint  text that names the failed operation. For some results, this function appends a
    ///              remedy
    [[noreturn]] void raise(Result result, const char* function, std::string_view hint) const;
    void check(Result result, const char* function, std::string_view hint) const {
        if (result != success) {
            raise(result, function, hint);
        }
    }

    /// Returns an attribute of a device, or 0 if the query fails, for example because the driver
    /// does not support the attribute.
    [[nodiscard]] int attribute(DeviceAttribute attribute, Device device) const noexcept;
    /// Returns the PCI address of a device, "0000:3b:00.0", or an empty string if the driver does
    /// not report the address.
    [[nodiscard]] std::string pci_address(Device device) const;
};

[[nodiscard]] int errno_of(Result result) noexcept;

/// Reports a failed teardown to the teardown failure handler. Ignores the results of a driver that
/// has shut down (at the end of the process) or is not initialised (in a child process after
/// fork(2)).
void report_teardown(Result result, const char* function) noexcept;

/// Holds a reference to the primary context of a device. The constructor creates the context if it
/// does not exist.
class PrimaryContext {
  public:
    PrimaryContext(const Driver& driver, Device device);
    ~PrimaryContext();
    PrimaryContext(const PrimaryContext&) = delete;
    PrimaryContext& operator=(const PrimaryContext&) = delete;

    [[nodiscard]] Context get() const noexcept { return context_; }

  private:
    const Functions* functions_;
    Device device_;
    Context context_ = nullptr;
};

/// Exchanges @p mode with the capture mode of the calling thread. In the mode capture_mode_relaxed,
/// the driver permits all calls although streams of the program are captured (CUDA graphs). Does
/// nothing if the driver lacks the function (before CUDA 10.1).
void exchange_capture_mode(const Functions& functions, int& mode) noexcept;

/// While this object exists, a context is current, and the capture mode of the thread is
/// capture_mode_relaxed. The destructor restores the previous context and capture mode.
class CurrentContext {
  public:
    CurrentContext(const Driver& driver, Context context);
    ~CurrentContext();
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

  private:
    const Functions* functions_;
    /// The capture mode that the next exchange sets. The constructor sets capture_mode_relaxed, and
    /// the destructor sets the previous mode of the thread.
    int capture_mode_ = capture_mode_relaxed;
};

} // namespace rdmabuf::detail::cuda
