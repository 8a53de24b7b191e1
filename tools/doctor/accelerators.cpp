// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for the drivers of all GPUs, for AMD and Intel GPUs, and for Gaudi.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include <rdmabuf/quirks.hpp>

#include "condition.hpp"
#include "kernel_files.hpp"
#include "pci_config.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

bool has_driver(const Check& check, std::string_view driver) {
    return std::ranges::any_of(check.gpus(),
                               [driver](const Gpu* gpu) { return gpu->driver == driver; });
}

/// The kernel drivers that share the memory of a vendor's GPUs with other devices.
struct VendorDrivers {
    std::uint32_t vendor = 0;
    std::array<std::string_view, 2> drivers{};
};
constexpr std::array vendor_drivers{
    VendorDrivers{nvidia_vendor, {"nvidia", ""}},
    VendorDrivers{amd_vendor, {"amdgpu", ""}},
    VendorDrivers{intel_vendor, {"xe", "i915"}},
    VendorDrivers{habana_vendor, {"habanalabs", ""}},
};

/// Returns the reason why nvidia.ko does not serve the GPU to this process; empty if it does, and
/// if /proc does not list the GPUs of nvidia.ko.
std::string why_not_served(const Machine& machine, const std::string& gpu) {
    const std::string directory = "/proc/driver/nvidia/gpus";
    if (machine.list(directory).empty()) {
        return {};
    }
    const FileText file = machine.read(fmt::format("{}/{}/information", directory, gpu));
    const auto minor = value_of(file.view(), "Device Minor:");
    if (!minor) {
        return "nvidia.ko does not list the GPU";
    }
    const std::string node = "/dev/nvidia" + *minor;
    return machine.exists(node) ? "" : node + " does not exist";
}

void check_drivers(Check& check) {
    for (const Gpu* const gpu : check.gpus()) {
        const auto* const known =
            std::ranges::find(vendor_drivers, gpu->vendor, &VendorDrivers::vendor);
        const std::string_view wanted = known != vendor_drivers.end() ? known->drivers[0] : "";
        const bool bound = !gpu->driver.empty() &&
                           (wanted.empty() ||
                            std::ranges::find(known->drivers, gpu->driver) != known->drivers.end());
        if (!PciConfig(check.machine(), gpu->name).answers()) {
            check.fail({gpu->name}, "the GPU does not answer: its PCI registers read as ff",
                       {.means = "The GPU has left the bus, so no program can use it.",
                        .remedy = "See the kernel log (Xid 79 with NVIDIA), reset the GPU or power "
                                  "the machine off and on, and check the card and its power."});
        } else if (gpu->driver.empty()) {
            check.fail(
                {gpu->name}, "no driver is bound",
                {.means = "No program can use the GPU.",
                 .remedy = fmt::format(
                     "Install the driver and load its module{}{}. If it is loaded, the kernel "
                     "log says why it did not take this GPU.",
                     wanted.empty() ? "" : " ", wanted)});
        } else if (!bound) {
            const bool given_away = gpu->driver == "vfio-pci" || gpu->driver == "pci-stub" ||
                                    gpu->driver == "uio_pci_generic";
            check.fail(
                {gpu->name}, gpu->driver + " is bound",
                {.means = given_away ? "The GPU is given to a virtual machine or to a driver in "
                                       "user space, so programs of this system cannot use it."
                                     : "This driver exports no memory of the GPU for RDMA.",
                 .remedy = fmt::format("To use it here, bind the driver {} in place of {}.", wanted,
                                       gpu->driver)});
        } else if (const std::string reason =
                       is_nvidia(gpu) ? why_not_served(check.machine(), gpu->name) : "";
                   !reason.empty()) {
            check.fail(
                {gpu->name}, reason,
                {.means = "Programs of this system or container cannot use the GPU.",
                 .remedy = "In a container: start it with --gpus or NVIDIA_VISIBLE_DEVICES. On "
                           "the host: run nvidia-modprobe, and see the kernel log."});
        } else {
            check.pass({gpu->name}, gpu->driver);
        }
    }
}

/// Checks whether amdgpu keeps the memory on the GPU while a NIC has it registered.
void check_amd_moves(Check& check) {
    if (!has_driver(check, "amdgpu")) {
        return;
    }
    const auto kernel = first_numbers(check.machine().kernel_release());
    const KernelOption option = read_kernel_option(check.machine(), "CONFIG_DMABUF_MOVE_NOTIFY");
    const bool always_on = kernel >= std::pair(7U, 1U);
    const Advice advice{
        .means =
            "amdgpu moves the memory to system memory when a NIC registers it, so that "
            "transfers cross PCIe twice.",
        .remedy =
            "Boot a kernel with CONFIG_DMABUF_MOVE_NOTIFY (Linux 7.1 always has it). NICs "
            "whose drivers pin dma-bufs also need Linux 6.15."};
    if (kernel.first == 0) {
        check.unknown({}, "/proc does not have the release of the kernel");
    } else if (!always_on && option.state == KernelOption::State::off) {
        check.fail({}, "CONFIG_DMABUF_MOVE_NOTIFY is off in " + option.where, advice);
    } else if (!always_on && option.state == KernelOption::State::unknown) {
        check.unknown({}, option.where);
    } else {
        for (const NicFiles* const nic : check.nics()) {
            const ImporterQuirk* const quirk = find_importer_quirk(nic->driver);
            if (quirk == nullptr || quirk->mode == ImportMode::none) {
                continue;
            }
            if (quirk->mode != ImportMode::follows_moves && kernel < std::pair(6U, 15U)) {
                check.fail({nic->name},
                           fmt::format("{} pins dma-bufs, kernel {}", nic->driver,
                                       check.machine().kernel_release()),
                           advice);
            } else {
                check.pass({nic->name},
                           always_on ? "kernel " + check.machine().kernel_release() : option.where);
            }
        }
    }
}

/// Adds a finding with the result of an exporter's probe, which initialises the GPU driver.
void check_exporter(Check& check, const char* exporter, const char* means) {
    if (const std::string reason = check.why_no_driver(); !reason.empty()) {
        check.unknown({}, reason);
        return;
    }
    const Availability availability = check.system()->exporter(exporter);
    if (availability) {
        check.pass({}, availability.reason);
    } else {
        check.fail({}, availability.reason, {.means = means, .remedy = availability.remedy});
    }
}

void check_amd(Check& check) {
    if (has_driver(check, "amdgpu")) {
        check_exporter(check, "rocm", "Memory of AMD GPUs cannot be exported as dma-bufs.");
    }
}

void check_intel(Check& check) {
    for (const Gpu* const gpu : check.gpus()) {
        if (gpu->driver == "xe") {
            check.pass({gpu->name}, "xe shares the memory of the GPU in place");
        } else if (gpu->driver == "i915") {
            check.fail({gpu->name}, "i915",
                       {.means = "i915 moves every shared buffer to system memory, so that "
                                 "transfers cross PCIe twice.",
                        .remedy = "Use the driver xe (boot with i915.force_probe=!* "
                                  "xe.force_probe=*)."});
        }
    }
}

void check_gaudi(Check& check) {
    if (has_driver(check, "habanalabs")) {
        check_exporter(check, "habana", "Memory of Gaudi cannot be exported as dma-bufs.");
    }
}

constexpr std::array accelerators_list{
    Condition{"C-60", Severity::blocks, "the driver of the GPU is bound, and the GPU answers",
              "Linux, Documentation/ABI/testing/sysfs-bus-pci; vfio.rst", check_drivers},
    Condition{"C-61", Severity::no_peer_to_peer, "AMD: registered memory stays on the GPU",
              "Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_dma_buf.c; drivers/dma-buf/Kconfig",
              check_amd_moves, amd_vendor},
    Condition{"C-48", Severity::blocks, "AMD: ROCm exports dma-bufs", "rccl, src/misc/rocmwrap.cc",
              check_amd, amd_vendor},
    Condition{"C-49", Severity::blocks, "Intel: the driver is xe",
              "Linux, drivers/gpu/drm/i915/gem/i915_gem_dmabuf.c", check_intel},
    Condition{"C-50", Severity::blocks, "Gaudi: the driver exports dma-bufs",
              "ucx, src/uct/ib/base/ib_md.c", check_gaudi},
};

} // namespace

ConditionGroup accelerator_conditions() noexcept {
    return {.title = "All GPUs, AMD, Intel and Gaudi", .conditions = accelerators_list};
}

} // namespace rdmabuf::tools::doctor
