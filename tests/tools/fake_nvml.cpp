// SPDX-License-Identifier: BSD-3-Clause
//
// A library with the functions of NVML that `rdmabuf doctor` calls, and one GPU at 0000:3b:00.0.
#include <string_view>

namespace {

struct Bar1 {
    unsigned long long total, free, used;
};

int users = 0;
int gpu = 0;

} // namespace

extern "C" {
int nvmlInit_v2();
int nvmlShutdown();
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device);
int nvmlDeviceGetBAR1MemoryInfo(void* device, Bar1* memory);

int nvmlInit_v2() {
    ++users;
    return 0;
}

int nvmlShutdown() {
    return users-- > 0 ? 0 : 1;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
    constexpr int not_found = 6;
    *device = &gpu;
    return users > 0 && std::string_view(address) == "0000:3b:00.0" ? 0 : not_found;
}

int nvmlDeviceGetBAR1MemoryInfo(void* device, Bar1* memory) {
    memory->total = 131072ULL << 20U;
    memory->free = 7ULL << 20U;
    memory->used = memory->total - memory->free;
    return device == &gpu ? 0 : 2;
}
}
