// SPDX-License-Identifier: BSD-3-Clause
#include "nvml.hpp"

#include <dlfcn.h>

namespace rdmabuf::tools::doctor {

namespace {

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

} // namespace

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
