// SPDX-License-Identifier: BSD-3-Clause
//
// Finds the kinds of memory for which proofs (test transfers) are made.
#include <algorithm>
#include <array>
#include <cctype>
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
    MemoryDriver{"cuda", nvidia_vendor, "/dev/nvidiactl"},
    MemoryDriver{"rocm", amd_vendor, "/dev/kfd"},
    MemoryDriver{"level_zero", intel_vendor},
    MemoryDriver{"neuron", amazon_vendor, "/dev/neuron0"},
};

/// Says whether the exporter can be used.
Availability availability_of(const Resolver& resolver, const char* name) {
    try {
        return resolver.exporter(name)->availability();
    } catch (const std::exception&) {
        std::string option = name;
        std::ranges::transform(option, option.begin(),
                               [](unsigned char c) { return std::toupper(c); });
        return Availability::no(
            fmt::format("this rdmabuf was built without the exporter {}", name),
            fmt::format("Configure rdmabuf with -D RDMABUF_PROVIDER_{}=ON.", option));
    }
}

/// Returns the entry of a kind of memory. @param exporter  says whether it can be allocated
MemoryKindEntry memory_of(const char* type, const Availability& exporter = Availability::yes()) {
    MemoryKindEntry entry;
    entry.options.type = type;
    entry.name = type;
    if (!exporter) {
        entry.missing = exporter.reason;
        entry.remedy = exporter.remedy;
    }
    entry.on_gpu = std::ranges::any_of(memory_drivers, [type](const MemoryDriver& driver) {
        return driver.vendor != 0 && std::string_view(driver.memory) == type;
    });
    return entry;
}

/// Adds one entry for each selected GPU of NVIDIA. If sysfs lists no GPU, adds those that CUDA
/// lists, or one entry with the reason why the exporter cannot be used.
void add_cuda(std::vector<MemoryKindEntry>& all, const Check& check, const Availability& exporter) {
    const CudaDevices cuda = exporter ? query_cuda_devices() : CudaDevices{};
    if (check.machine().gpus().empty()) {
        for (const CudaDevice& device : cuda.devices) {
            MemoryKindEntry entry = memory_of("cuda");
            entry.options.gpu = device.number;
            entry.name = fmt::format("cuda:{}", device.number);
            entry.gpu = device.pci_address;
            all.push_back(std::move(entry));
        }
        if (!exporter) {
            all.push_back(memory_of("cuda", exporter));
        }
        return;
    }
    for (const Gpu* const gpu : check.gpus()) {
        if (!is_nvidia(gpu)) {
            continue;
        }
        MemoryKindEntry entry = memory_of("cuda", exporter);
        entry.gpu = gpu->name;
        const auto found = std::ranges::find(cuda.devices, gpu->name, &CudaDevice::pci_address);
        if (found != cuda.devices.end()) {
            entry.options.gpu = found->number;
            entry.name = fmt::format("cuda:{}", found->number);
        } else if (exporter) {
            entry.missing = "CUDA does not list this GPU (CUDA_VISIBLE_DEVICES)";
        }
        all.push_back(std::move(entry));
    }
}

/// Adds the memory of a driver if a GPU of its vendor is selected, or if the driver may have a GPU
/// that sysfs does not list.
void add_driver(std::vector<MemoryKindEntry>& all, const Check& check, const Resolver& resolver,
                const MemoryDriver& driver) {
    const auto is_vendor = [&driver](const Gpu* gpu) { return gpu->vendor == driver.vendor; };
    const auto gpus = std::ranges::count_if(check.gpus(), is_vendor);
    // If sysfs lists no GPU at all, as in some containers, the device node shows that the driver
    // has one. Otherwise ignore the node: --gpu may have excluded the GPUs of this driver.
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
    const Availability exporter =
        no_path ? Availability::no("the kernel modules export no dma-bufs (C-12)")
                : availability_of(resolver, driver.memory);
    if (cuda) {
        add_cuda(all, check, exporter);
        return;
    }
    MemoryKindEntry entry = memory_of(driver.memory, exporter);
    if (gpus == 1) {
        entry.gpu = (*std::ranges::find_if(check.gpus(), is_vendor))->name;
    }
    all.push_back(std::move(entry));
}

} // namespace

std::vector<MemoryKindEntry> find_memory(const Check& check, const Options& options) {
    std::vector<MemoryKindEntry> all;
    const Resolver resolver = Resolver::system();
    const bool only_gpus = !options.gpu.empty();
    if (!only_gpus) {
        all.push_back(memory_of("host"));
        all.back().counts = false;
    }
    for (const MemoryDriver& driver : memory_drivers) {
        if (driver.vendor != 0) {
            add_driver(all, check, resolver, driver);
        } else if (!only_gpus) {
            all.push_back(memory_of(driver.memory, availability_of(resolver, driver.memory)));
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
