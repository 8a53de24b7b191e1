// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/cuda_driver.hpp"

#include <array>
#include <cctype>
#include <cerrno>
#include <utility>

#include "common/driver_library.hpp"
#include "common/driver_result.hpp"

namespace rdmabuf::detail::cuda {
namespace {

constexpr std::array library_names{"libcuda.so.1", "libcuda.so"};
constexpr const char* library_remedy =
    "install the NVIDIA driver; in a container, make the driver of the host available "
    "(nvidia-container-toolkit, --gpus all)";
constexpr const char* version_remedy = "install NVIDIA driver 515 (CUDA 11.7) or newer";
constexpr const char* fork_remedy =
    "CUDA is not initialised in this process; if a parent process initialised CUDA before fork(), "
    "CUDA cannot be used in the child: fork before CUDA is used, or exec another program";

Functions look_up(SymbolLookup& lookup) {
    Functions all;
    constexpr const char* old = "CUDA 6.0";
    lookup.required("cuGetErrorName", all.get_error_name, old);
    lookup.required("cuInit", all.init, old);
    lookup.required("cuDriverGetVersion", all.driver_get_version, old);
    lookup.required("cuDeviceGetCount", all.device_get_count, old);
    lookup.required("cuDeviceGet", all.device_get, old);
    lookup.required("cuDeviceGetAttribute", all.device_get_attribute, old);
    lookup.required("cuDeviceGetPCIBusId", all.device_get_pci_bus_id, old);
    lookup.needed("cuDevicePrimaryCtxRetain", all.device_primary_context_retain, "CUDA 7.0");
    lookup.needed("cuDevicePrimaryCtxRelease_v2", all.device_primary_context_release, "CUDA 11.0");
    lookup.needed("cuDevicePrimaryCtxGetState", all.device_primary_context_get_state, "CUDA 7.0");
    lookup.required("cuCtxGetCurrent", all.context_get_current, old);
    lookup.required("cuCtxPushCurrent_v2", all.context_push_current, old);
    lookup.required("cuCtxPopCurrent_v2", all.context_pop_current, old);
    lookup.required("cuPointerGetAttribute", all.pointer_get_attribute, old);
    lookup.required("cuPointerGetAttributes", all.pointer_get_attributes, "CUDA 7.0");
    lookup.needed("cuPointerSetAttribute", all.pointer_set_attribute, old);
    lookup.required("cuMemGetAddressRange_v2", all.mem_get_address_range, old);
    lookup.needed("cuMemGetHandleForAddressRange", all.mem_get_handle_for_address_range,
                  "CUDA 11.7");
    lookup.needed("cuFlushGPUDirectRDMAWrites", all.flush_gpu_direct_rdma_writes, "CUDA 11.3");
    lookup.needed("cuMemAlloc_v2", all.mem_alloc, old);
    lookup.needed("cuMemFree_v2", all.mem_free, old);
    lookup.needed("cuStreamCreate", all.stream_create, old);
    lookup.needed("cuStreamDestroy_v2", all.stream_destroy, old);
    lookup.needed("cuStreamSynchronize", all.stream_synchronize, old);
    lookup.needed("cuMemcpyHtoDAsync_v2", all.memcpy_h_to_d_async, old);
    lookup.needed("cuMemcpyDtoHAsync_v2", all.memcpy_d_to_h_async, old);
    lookup.optional("cuThreadExchangeStreamCaptureMode", all.thread_exchange_stream_capture_mode);
    return all;
}

/// Returns a remedy for @p result that fits all functions of the driver, or null if there is none.
const char* remedy_for(Result result) noexcept {
    switch (result) {
        case not_initialized:
            return fork_remedy;
        case deinitialized:
            return "the driver is shutting down: the process is about to end";
        case stub_library:
            return "this libcuda.so.1 is the stub of the CUDA toolkit, which is for linking only: "
                   "remove its directory (lib64/stubs) from LD_LIBRARY_PATH";
        case no_device:
            return "this process sees no GPU: check CUDA_VISIBLE_DEVICES, and the devices that are "
                   "passed to its container";
        case context_is_destroyed:
        case invalid_context:
            return "the context in which the memory was allocated has been destroyed: keep the "
                   "context while the memory is used, or allocate the memory in the primary "
                   "context";
        default:
            return nullptr;
    }
}

} // namespace

DriverDescription<Functions> Driver::description() {
    return {library_names, "NVIDIA driver", library_remedy, version_remedy, look_up};
}

std::optional<ErrorInfo> Driver::initialise() const {
    const Result initialised = functions().init(0);
    if (initialised == success) {
        return std::nullopt;
    }
    const char* const remedy = remedy_for(initialised);
    return ErrorInfo{errno_of(initialised), "cuInit",
                     "CUDA cannot be initialised: " + name_of(initialised),
                     remedy != nullptr ? remedy
                                       : "check whether nvidia-smi lists the GPU, and check dmesg "
                                         "for messages of the kernel module"};
}

std::string Driver::name_of(Result result) const {
    const char* name = nullptr;
    if (functions().get_error_name(result, &name) != success || name == nullptr) {
        name = "unknown result";
    }
    return std::string(name) + " (" + std::to_string(result) + ")";
}

void Driver::raise(Result result, const char* function, std::string_view hint) const {
    DriverFailure{name_of(result), errno_of(result), remedy_for(result)}.raise(function, hint);
}

int Driver::attribute(DeviceAttribute attribute, Device device) const noexcept {
    int value = 0;
    return functions().device_get_attribute(&value, attribute, device) == success ? value : 0;
}

std::string Driver::pci_address(Device device) const {
    std::array<char, 32> text{};
    if (functions().device_get_pci_bus_id(text.data(), static_cast<int>(text.size()), device) !=
        success) {
        return {};
    }
    std::string address(text.data());
    // The driver returns PCI addresses in upper case. This loop converts the address to lower case,
    // as in sysfs: 0000:3b:00.0.
    for (char& character : address) {
        character = static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
    }
    return address;
}

int errno_of(Result result) noexcept {
    switch (result) {
        case out_of_memory:
            return ENOMEM;
        case not_initialized:
        case deinitialized:
        case stub_library:
        case no_device:
        case invalid_device:
            return ENODEV;
        case not_supported:
            return EOPNOTSUPP;
        case not_permitted:
            return EPERM;
        default:
            return EIO;
    }
}

void report_teardown(Result result, const char* function) noexcept {
    report_teardown_unless({success, deinitialized, not_initialized}, result, errno_of(result),
                           function);
}

PrimaryContext::PrimaryContext(const Driver& driver, Device device)
    : functions_(&driver.functions()), device_(device) {
    driver.check(functions_->device_primary_context_retain(&context_, device),
                 "cuDevicePrimaryCtxRetain",
                 "the primary context of device " + std::to_string(device) + " cannot be retained");
}

PrimaryContext::~PrimaryContext() {
    report_teardown(functions_->device_primary_context_release(device_),
                    "cuDevicePrimaryCtxRelease");
}

CurrentContext::CurrentContext(const Driver& driver, Context context)
    : functions_(&driver.functions()) {
    driver.check(functions_->context_push_current(context), "cuCtxPushCurrent",
                 "the context of the memory cannot be made current");
    exchange_capture_mode(*functions_, capture_mode_);
}

CurrentContext::~CurrentContext() {
    exchange_capture_mode(*functions_, capture_mode_);
    Context popped = nullptr;
    report_teardown(functions_->context_pop_current(&popped), "cuCtxPopCurrent");
}

void exchange_capture_mode(const Functions& functions, int& mode) noexcept {
    if (functions.thread_exchange_stream_capture_mode != nullptr) {
        (void)functions.thread_exchange_stream_capture_mode(&mode);
    }
}

} // namespace rdmabuf::detail::cuda
