// SPDX-License-Identifier: BSD-3-Clause
#include "cuda_devices.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

// Values of CUdevice_attribute in cuda.h.
constexpr int attribute_integrated = 18;
constexpr int attribute_major = 75;
constexpr int attribute_minor = 76;
constexpr int attribute_virtual_memory_rdma = 110;
constexpr int attribute_gpu_direct_rdma = 116;
constexpr int attribute_dmabuf = 124;

/// The functions of the CUDA driver that return a CUresult, which is 0 for success.
struct Driver {
    int (*init)(unsigned flags) = nullptr;
    int (*driver_version)(int* version) = nullptr;
    int (*count)(int* count) = nullptr;
    int (*device)(int* device, int number) = nullptr;
    int (*attribute)(int* value, int attribute, int device) = nullptr;
    int (*pci_bus_id)(char* text, int size, int device) = nullptr;

    [[nodiscard]] bool complete() const noexcept {
        return init != nullptr && driver_version != nullptr && count != nullptr &&
               device != nullptr && attribute != nullptr && pci_bus_id != nullptr;
    }
};

/// nvmlBAR1Memory_t of nvml.h.
struct NvmlBar1 {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

template <class Function>
void look_up(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
}

std::optional<int> attribute_of(const Driver& driver, int device, int attribute) {
    int value = 0;
    return driver.attribute(&value, attribute, device) == 0 ? std::optional(value) : std::nullopt;
}

std::string pci_address_of(const Driver& driver, int device) {
    std::array<char, 32> text{};
    if (driver.pci_bus_id(text.data(), static_cast<int>(text.size()), device) != 0) {
        return {};
    }
    std::string address = text.data();
    std::ranges::transform(address, address.begin(), [](unsigned char each) {
        return static_cast<char>(std::tolower(each));
    });
    // CUDA writes a domain of 8 digits on some systems, and sysfs writes 4.
    return address.size() == 16 && address.starts_with("0000") ? address.substr(4) : address;
}

} // namespace

CudaDevices query_cuda_devices() {
    // The library stays loaded, because the drivers of GPUs do not support unloading.
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return {.reason = "libcuda.so.1 cannot be loaded"};
    }
    Driver driver;
    look_up(library, "cuInit", driver.init);
    look_up(library, "cuDriverGetVersion", driver.driver_version);
    look_up(library, "cuDeviceGetCount", driver.count);
    look_up(library, "cuDeviceGet", driver.device);
    look_up(library, "cuDeviceGetAttribute", driver.attribute);
    look_up(library, "cuDeviceGetPCIBusId", driver.pci_bus_id);
    if (!driver.complete()) {
        return {.reason = "libcuda.so.1 lacks functions"};
    }
    CudaDevices all;
    driver.driver_version(&all.driver_version);
    if (const int result = driver.init(0); result != 0) {
        all.reason = fmt::format("cuInit failed with CUresult {}", result);
        return all;
    }
    int count = 0;
    driver.count(&count);
    for (int number = 0; number < count; ++number) {
        int device = 0;
        if (driver.device(&device, number) != 0) {
            continue;
        }
        all.devices.push_back(
            {.number = number,
             .pci_address = pci_address_of(driver, device),
             .major = attribute_of(driver, device, attribute_major).value_or(0),
             .minor = attribute_of(driver, device, attribute_minor).value_or(0),
             .dmabuf = attribute_of(driver, device, attribute_dmabuf),
             .gpu_direct_rdma = attribute_of(driver, device, attribute_gpu_direct_rdma),
             .integrated = attribute_of(driver, device, attribute_integrated),
             .virtual_memory_rdma = attribute_of(driver, device, attribute_virtual_memory_rdma)});
    }
    return all;
}

std::optional<Bar1> query_bar1(const std::string& pci_address) {
    // The functions return an nvmlReturn_t, which is 0 for success. The library stays loaded,
    // because the drivers of GPUs do not support unloading.
    void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)() = nullptr;
    int (*shutdown)() = nullptr;
    int (*find)(const char* pci_address, void** device) = nullptr;
    int (*bar1)(void* device, NvmlBar1* memory) = nullptr;
    if (library == nullptr) {
        return std::nullopt;
    }
    look_up(library, "nvmlInit_v2", init);
    look_up(library, "nvmlShutdown", shutdown);
    look_up(library, "nvmlDeviceGetHandleByPciBusId_v2", find);
    look_up(library, "nvmlDeviceGetBAR1MemoryInfo", bar1);
    if (init == nullptr || shutdown == nullptr || find == nullptr || bar1 == nullptr ||
        init() != 0) {
        return std::nullopt;
    }
    void* device = nullptr;
    NvmlBar1 memory{};
    const bool known = find(pci_address.c_str(), &device) == 0 && bar1(device, &memory) == 0;
    shutdown();
    return known ? std::optional<Bar1>({.total = memory.total, .free = memory.free}) : std::nullopt;
}

} // namespace rdmabuf::tools::doctor
