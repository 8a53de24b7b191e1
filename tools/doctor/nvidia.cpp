// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for NVIDIA GPUs and their drivers.
#include <algorithm>
#include <array>

#include "condition.hpp"
#include "kernel_files.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

bool has_nvidia_driver(const Gpu* gpu) {
    return is_nvidia(gpu) && gpu->driver == "nvidia";
}

/// The first branch of the driver with open kernel modules and with CUDA 11.7.
constexpr unsigned first_open_branch = 515;

/// Returns 535 for the driver 535.183.01; 0 if /proc does not have the version.
unsigned driver_branch(const Machine& machine) {
    const std::string version = machine.line("/proc/driver/nvidia/version");
    for (const std::string_view word : words(version)) {
        if (const unsigned branch = first_numbers(word).first; branch >= 100) {
            return branch;
        }
    }
    return 0;
}

void check_modules(Check& check) {
    if (!check.has_nvidia()) {
        return;
    }
    const std::string version = check.machine().line("/proc/driver/nvidia/version");
    switch (read_nvidia_modules(check.machine())) {
        case NvidiaModules::open:
            check.pass({}, version);
            break;
        case NvidiaModules::proprietary: {
            const bool old = driver_branch(check.machine()) < first_open_branch;
            check.fail(
                {}, version,
                {.means = "The proprietary kernel modules export no dma-bufs.",
                 .remedy = fmt::format(
                     "{} (nvidia-open; in the GPU Operator driver.kernelModuleType=open). "
                     "They support Turing and newer GPUs.",
                     old ? "Upgrade the driver to R515 or newer, with the open kernel modules"
                         : "Install the open kernel modules")});
            break;
        }
        case NvidiaModules::none:
            if (std::ranges::none_of(check.gpus(), has_nvidia_driver)) {
                check.unknown({}, "nvidia.ko drives no GPU (C-60)");
                break;
            }
            check.fail({}, "/proc/driver/nvidia/version does not exist",
                       {.means = "The driver of the GPU is not in this container.",
                        .remedy = "Start the container with --gpus."});
            break;
    }
}

/// Calls @p use with each selected GPU of NVIDIA that CUDA lists. Adds a finding with
/// Verdict::unknown for each other selected GPU of NVIDIA.
template <class Use>
void for_each_device(Check& check, const Use& use) {
    if (!check.has_nvidia()) {
        return;
    }
    const CudaDevices& cuda = check.cuda();
    for (const Gpu* const gpu : check.gpus()) {
        const auto found = std::ranges::find(cuda.devices, gpu->name, &CudaDevice::pci_address);
        if (found != cuda.devices.end()) {
            use(*gpu, *found);
        } else if (is_nvidia(gpu)) {
            check.unknown({gpu->name},
                          cuda.reason.empty() ? "CUDA does not list this GPU" : cuda.reason);
        }
    }
}

void check_generation(Check& check) {
    for_each_device(check, [&check](const Gpu& gpu, const CudaDevice& device) {
        const std::string found =
            fmt::format("compute capability {}.{}", device.major, device.minor);
        if (device.major * 10 + device.minor >= 75) {
            check.pass({gpu.name}, found);
        } else {
            check.fail({gpu.name}, found,
                       {.means = "GPUs older than Turing export no dma-bufs.",
                        .remedy = "Use the module nvidia_peermem with the drivers of DOCA-OFED."});
        }
    });
}

void check_driver_version(Check& check) {
    if (!check.has_nvidia()) {
        return;
    }
    const CudaDevices& cuda = check.cuda();
    const unsigned branch = driver_branch(check.machine());
    if (cuda.driver_version == 0 && branch == 0) {
        check.unknown({}, cuda.reason);
        return;
    }
    const std::string found = cuda.driver_version == 0
                                  ? fmt::format("driver R{}", branch)
                                  : fmt::format("CUDA {}.{}", cuda.driver_version / 1000,
                                                cuda.driver_version % 1000 / 10);
    if (cuda.driver_version == 0 ? branch >= first_open_branch : cuda.driver_version >= 11070) {
        check.pass({}, found);
    } else {
        check.fail({}, found,
                   {.means = "The driver has no cuMemGetHandleForAddressRange().",
                    .remedy = "Install driver R515 or newer."});
    }
}

void check_exports(Check& check) {
    for_each_device(check, [&check](const Gpu& gpu, const CudaDevice& device) {
        const int direct = device.gpu_direct_rdma.value_or(0);
        const std::string found = fmt::format("DMA_BUF_SUPPORTED {}, GPU_DIRECT_RDMA_SUPPORTED {}",
                                              device.dmabuf.value_or(0), direct);
        if (device.dmabuf.value_or(0) != 0) {
            check.pass({gpu.name}, found);
        } else {
            check.fail({gpu.name}, found,
                       {.means = "The driver exports no dma-bufs for this GPU.",
                        .remedy = "Causes are a kernel without dma-bufs, confidential computing, "
                                  "and the proprietary kernel modules (C-12)."});
        }
    });
}

/// Checks whether memory of cuMemCreate() can be registered. This requires that the GPU supports
/// it, and that the program sets allocFlags.gpuDirectRDMACapable. PyTorch calls cuMemCreate() if
/// expandable_segments is set, and older versions of PyTorch do not set the flag.
void check_virtual_memory(Check& check) {
    const bool expandable =
        check.machine().read("/proc/self/environ").view().find("expandable_segments:True") !=
        std::string_view::npos;
    for_each_device(check, [&check, expandable](const Gpu& gpu, const CudaDevice& device) {
        const int supported = device.virtual_memory_rdma.value_or(0);
        const std::string found =
            fmt::format("GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED {}", supported);
        if (supported == 0) {
            check.fail({gpu.name}, found,
                       {.means = "Memory of cuMemCreate() cannot be registered. PyTorch with "
                                 "expandable_segments and vLLM's sleep mode allocate such memory.",
                        .remedy = "Allocate with cuMemAlloc() or cudaMalloc(); for PyTorch, remove "
                                  "expandable_segments from PYTORCH_CUDA_ALLOC_CONF."});
        } else if (expandable) {
            check.unknown({gpu.name}, found + ", and PyTorch uses expandable_segments",
                          {.means = "PyTorch allocates by cuMemCreate(). Only its newer versions "
                                    "allocate for RDMA.",
                           .remedy = "If registrations fail, remove expandable_segments from "
                                     "PYTORCH_CUDA_ALLOC_CONF."});
        } else {
            check.pass({gpu.name}, found + "; cuMemCreate() needs gpuDirectRDMACapable");
        }
    });
}

void check_integrated(Check& check) {
    for_each_device(check, [&check](const Gpu& gpu, const CudaDevice& device) {
        if (device.integrated.value_or(0) == 0) {
            check.pass({gpu.name}, "the GPU has memory of its own");
        } else {
            check.fail({gpu.name}, "the GPU is integrated",
                       {.means = "Its memory is the memory of the host.",
                        .remedy = "Allocate by cudaHostAlloc() and register as host memory."});
        }
    });
}

void check_topology_override(Check& check) {
    const FileText params = check.machine().read("/proc/driver/nvidia/params");
    if (!check.has_nvidia() || !params.text) {
        return;
    }
    const auto value = value_of(*params.text, "GrdmaPciTopoCheckOverride:");
    if (!value || *value == "0") {
        check.pass({}, "GrdmaPciTopoCheckOverride is 0");
    } else {
        check.fail({}, "GrdmaPciTopoCheckOverride is " + *value,
                   {.means = "1 permits, and 2 refuses, peer-to-peer DMA on every PCI topology. A "
                             "refused registration fails with errno 524.",
                    .remedy = "Remove NVreg_GrdmaPciTopoCheckOverride from the options of the "
                              "module nvidia, unless it is intended."});
    }
}

void check_peermem(Check& check) {
    if (!check.has_nvidia()) {
        return;
    }
    const Machine& machine = check.machine();
    if (const std::string module = peer_memory_module(machine); !module.empty()) {
        check.pass({}, module + " is loaded");
        return;
    }
    const NvidiaModules modules = read_nvidia_modules(machine);
    if (modules == NvidiaModules::none) {
        check.unknown({}, "nvidia.ko is not loaded (C-60)");
        return;
    }
    if (modules == NvidiaModules::open) {
        check.pass({}, "the open kernel modules export dma-bufs");
        return;
    }
    check.fail({}, "no module for peer memory is loaded",
               {.means = "Without dma-bufs (C-12), memory of the GPU cannot be registered at all.",
                .remedy = "Load nvidia_peermem, which needs the RDMA drivers of DOCA-OFED. On a "
                          "node of the GPU Operator the driver container loads it.",
                .command = "modprobe nvidia_peermem"});
}

void check_free_bar(Check& check) {
    if (!check.has_nvidia()) {
        return;
    }
    if (const std::string reason = check.why_no_driver(); !reason.empty()) {
        check.unknown({}, reason);
        return;
    }
    for (const Gpu* const gpu : check.gpus()) {
        if (!is_nvidia(gpu)) {
            continue;
        }
        const auto bar = check.system()->bar1(gpu->name);
        if (!bar) {
            check.unknown({gpu->name}, "NVML does not report BAR1");
            continue;
        }
        const std::string found =
            fmt::format("{} of {} MiB are free", bar->free / mebibyte, bar->total / mebibyte);
        // Each registration by a NIC uses as much BAR space as the registered memory has bytes. A
        // proof (test transfers) needs 4 MiB. Programs need more, so less than 64 MiB is a failure.
        if (bar->free >= 64 * mebibyte) {
            check.pass({gpu->name}, found);
        } else {
            check.fail({gpu->name}, found,
                       {.means = "Each registration on each NIC takes its own part of BAR1. "
                                 "Registrations fail when no part is left.",
                        .remedy = "Register on fewer NICs, do not use gdrcopy at the same time, or "
                                  "enlarge BAR1 (C-34)."});
        }
    }
}

constexpr std::array nvidia_list{
    Condition{
        "C-12", Severity::blocks, "NVIDIA: the driver is loaded, with its open kernel modules",
        "gpu-operator, gpu-operator-rdma.rst", check_modules, nvidia_vendor, /*only_dmabufs=*/true},
    Condition{"C-17", Severity::no_peer_to_peer, "NVIDIA: the check of the topology is the default",
              "open-gpu-kernel-modules, nv-reg.h", check_topology_override, nvidia_vendor},
    Condition{"C-19", Severity::information, "NVIDIA: dma-bufs or a module for peer memory exist",
              "NCCL, src/transport/net_ib/gdr.cc; dynamo issue 14506", check_peermem,
              nvidia_vendor},
    Condition{"C-14", Severity::blocks, "NVIDIA: the driver has CUDA 11.7",
              "CUDA driver API, cuMemGetHandleForAddressRange", check_driver_version, nvidia_vendor,
              /*only_dmabufs=*/true},
    Condition{"C-13", Severity::blocks, "NVIDIA: the GPU is Turing or newer",
              "gpu-operator, gpu-operator-rdma.rst", check_generation, nvidia_vendor,
              /*only_dmabufs=*/true},
    Condition{"C-15", Severity::blocks, "NVIDIA: the driver exports dma-bufs",
              "CUDA driver API, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED", check_exports,
              nvidia_vendor, /*only_dmabufs=*/true},
    Condition{"C-18", Severity::blocks, "NVIDIA: cuMemCreate() can allocate for RDMA",
              "CUDA driver API, CUmemAllocationProp; vLLM issue 29569", check_virtual_memory},
    Condition{"C-35", Severity::no_peer_to_peer, "NVIDIA: BAR1 has room for registrations",
              "libfabric issue 10502, Mooncake issue 2523", check_free_bar, nvidia_vendor},
    Condition{"C-16", Severity::information, "NVIDIA: the GPU has memory of its own",
              "perftest, src/cuda_memory.c", check_integrated},
};

} // namespace

ConditionGroup nvidia_conditions() noexcept {
    return {.title = "NVIDIA GPUs", .conditions = nvidia_list};
}

} // namespace rdmabuf::tools::doctor
