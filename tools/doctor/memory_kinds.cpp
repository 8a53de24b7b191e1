// SPDX-License-Identifier: BSD-3-Clause
//
// Finds the kinds of memory for which proofs (test transfers) are made.
#include <algorithm>
#include <array>
#include <exception>
#include <string_view>
#include <utility>

#include <rdmabuf/resolver.hpp>

#include "cuda_devices.hpp"
#include "kernel_files.hpp"
#include "proof.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

/// A kind of memory that a driver allocates.
struct MemoryDriver {
    const char* memory = nullptr;
    /// The PCI vendor ID of the GPUs; 0 for memory that is not on a GPU.
    std::uint32_t vendor = 0;
    /// The device node of the driver. In a container, the node may exist although sysfs does not
    /// list the GPU.
    const char* node = nullptr;
};
constexpr std::array memory_drivers{
    MemoryDriver{"udmabuf"},
    MemoryDriver{"dma_heap"},
    MemoryDriver{"drm"},
    MemoryDriver{"cuda", 0x10de, "/dev/nvidiactl"},
    MemoryDriver{"rocm", 0x1002, "/dev/kfd"},
    MemoryDriver{"level_zero", 0x8086},
    MemoryDriver{"neuron", 0x1d0f, "/dev/neuron0"},
};

/// Returns the reason why the exporter cannot be used; empty if it can.
std::string why_missing(const Resolver& resolver, std::string_view name) {
    try {
        const Availability availability = resolver.exporter(name)->availability();
        return availability ? "" : availability.reason;
    } catch (const std::exception&) {
        return "this rdmabuf was built without the exporter";
    }
}

/// Returns the entry of a kind of memory. @param missing  the reason why it cannot be allocated
MemoryKindEntry memory_of(const char* type, std::string missing = {}) {
    MemoryKindEntry entry;
    entry.options.type = type;
    entry.name = type;
    entry.missing = std::move(missing);
    return entry;
}

/// Adds one entry for each selected GPU of NVIDIA. If sysfs lists no GPU, adds those that CUDA
/// lists.
void add_cuda(std::vector<MemoryKindEntry>& all, const Check& check, const std::string& missing) {
    const CudaDevices cuda = missing.empty() ? query_cuda_devices() : CudaDevices{};
    if (check.machine().gpus().empty()) {
        for (const CudaDevice& device : cuda.devices) {
            MemoryKindEntry entry = memory_of("cuda");
            entry.options.gpu = device.number;
            entry.name = fmt::format("cuda:{}", device.number);
            entry.gpu = device.pci_address;
            all.push_back(std::move(entry));
        }
        if (!missing.empty()) {
            all.push_back(memory_of("cuda", missing));
        }
        return;
    }
    for (const Gpu* const gpu : check.gpus()) {
        if (gpu->vendor != 0x10de) {
            continue;
        }
        MemoryKindEntry entry = memory_of("cuda", missing);
        entry.gpu = gpu->name;
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

/// Adds the memory of a driver if the machine has a GPU of this driver.
void add_driver(std::vector<MemoryKindEntry>& all, const Check& check, const Resolver& resolver,
                const MemoryDriver& driver) {
    const auto is_vendor = [&driver](const Gpu* gpu) { return gpu->vendor == driver.vendor; };
    const auto gpus = std::ranges::count_if(check.gpus(), is_vendor);
    // If sysfs lists no GPU, as in some containers, the device node shows that the driver has one.
    // If sysfs lists GPUs, ignore the device node: check.gpus() may have no GPU of this driver only
    // because --gpu excludes it.
    const bool hidden = check.machine().gpus().empty() && driver.node != nullptr &&
                        check.machine().exists(driver.node);
    if (gpus == 0 && !hidden) {
        return;
    }
    const bool cuda = std::string_view(driver.memory) == "cuda";
    // Initialising CUDA takes seconds. Do not do it if the kernel modules offer no registration
    // path.
    const bool no_path = cuda &&
                         read_nvidia_modules(check.machine()) == NvidiaModules::proprietary &&
                         peer_memory_module(check.machine()).empty();
    const std::string missing = no_path ? "the kernel modules export no dma-bufs (C-12)"
                                        : why_missing(resolver, driver.memory);
    if (cuda) {
        add_cuda(all, check, missing);
        return;
    }
    MemoryKindEntry entry = memory_of(driver.memory, missing);
    if (gpus == 1) {
        entry.gpu = (*std::ranges::find_if(check.gpus(), is_vendor))->name;
    }
    all.push_back(std::move(entry));
}

} // namespace

std::vector<MemoryKindEntry> find_memory(const Check& check, const Options& options) {
    std::vector<MemoryKindEntry> all;
    const Resolver resolver = Resolver::system();
    const bool only_gpus = options.gpu.has_value();
    if (!only_gpus) {
        all.push_back(memory_of("host"));
        all.back().counts = false;
    }
    for (const MemoryDriver& driver : memory_drivers) {
        if (driver.vendor != 0) {
            add_driver(all, check, resolver, driver);
        } else if (!only_gpus) {
            all.push_back(memory_of(driver.memory, why_missing(resolver, driver.memory)));
        }
    }
    const auto is_softverbs = [](const NicFiles* nic) { return nic->driver == "softverbs"; };
    if (!only_gpus && std::ranges::any_of(check.nics(), is_softverbs)) {
        all.push_back(memory_of("memfd"));
    }
    if (!only_gpus) {
        all.push_back(memory_of("dm"));
    }
    return all;
}

} // namespace rdmabuf::tools::doctor
