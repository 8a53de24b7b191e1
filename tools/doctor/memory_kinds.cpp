// SPDX-License-Identifier: BSD-3-Clause
//
// Finds the kinds of memory for which proofs are made.
#include <algorithm>
#include <exception>
#include <memory>

#include <rdmabuf/resolver.hpp>

#include "cuda_devices.hpp"
#include "proof.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

/// The memory of a driver, and the GPUs for which the driver is asked.
struct Driver {
    const char* memory;
    /// The PCI vendor ID of the GPUs; 0 for memory that is not on a GPU.
    std::uint32_t vendor;
};
constexpr Driver drivers[] = {
    {"udmabuf", 0},   {"dma-heap", 0},        {"drm", 0},         {"cuda", 0x10de},
    {"rocm", 0x1002}, {"level-zero", 0x8086}, {"habana", 0x1da3}, {"neuron", 0x1d0f},
};

/// Returns the reason why the exporter cannot be used; empty if it can.
std::string why_missing(const Resolver& resolver, std::string name) {
    std::ranges::replace(name, '-', '_');
    try {
        const Availability availability = resolver.exporter(name)->availability();
        return availability ? "" : availability.reason;
    } catch (const std::exception&) {
        return "this rdmabuf was built without the exporter";
    }
}

void add_cuda(std::vector<MemoryKindEntry>& all, const Check& check, const std::string& missing) {
    const CudaDevices cuda = missing.empty() ? query_cuda_devices() : CudaDevices{};
    for (const Gpu* const gpu : check.gpus()) {
        if (gpu->vendor != 0x10de) {
            continue;
        }
        MemoryKindEntry entry{
            .options = {.type = "cuda"}, .name = "cuda", .missing = missing, .gpu = gpu->name};
        const auto found = std::ranges::find(cuda.devices, gpu->name, &CudaDevice::pci_address);
        if (found != cuda.devices.end()) {
            entry.options.gpu = found->number;
            entry.name = fmt::format("cuda:{}", found->number);
        } else if (missing.empty()) {
            entry.missing = "CUDA does not list this GPU (CUDA_VISIBLE_DEVICES)";
        }
        all.push_back(std::move(entry));
    }
}

} // namespace

std::vector<MemoryKindEntry> find_memory(const Check& check, const Options& options) {
    std::vector<MemoryKindEntry> all;
    const bool only_gpus = options.gpu.has_value();
    const Resolver resolver = Resolver::system();
    if (!only_gpus) {
        all.push_back({.options = {.type = "host"}, .name = "host", .counts = false});
    }
    for (const Driver& driver : drivers) {
        if (driver.vendor == 0) {
            if (!only_gpus) {
                all.push_back({.options = {.type = driver.memory},
                               .name = driver.memory,
                               .missing = why_missing(resolver, driver.memory)});
            }
            continue;
        }
        const auto is_vendor = [&driver](const Gpu* gpu) { return gpu->vendor == driver.vendor; };
        const auto gpu = std::ranges::find_if(check.gpus(), is_vendor);
        if (gpu == check.gpus().end()) {
            continue;
        }
        const std::string missing = why_missing(resolver, driver.memory);
        if (std::string_view(driver.memory) == "cuda") {
            add_cuda(all, check, missing);
        } else {
            const bool single = std::ranges::count_if(check.gpus(), is_vendor) == 1;
            all.push_back({.options = {.type = driver.memory},
                           .name = driver.memory,
                           .missing = missing,
                           .gpu = single ? (*gpu)->name : ""});
        }
    }
    if (!only_gpus) {
        const bool softverbs = std::ranges::any_of(
            check.nics(), [](const NicFiles* nic) { return nic->driver == "softverbs"; });
        if (softverbs) {
            all.push_back({.options = {.type = "memfd"}, .name = "memfd"});
        }
        all.push_back({.options = {.type = "dm"}, .name = "dm"});
    }
    return all;
}

} // namespace rdmabuf::tools::doctor
