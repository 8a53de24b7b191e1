// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for the paths between GPUs and NICs, as sysfs describes them.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "condition.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

std::string directory_of(const std::string& pci) {
    return "/sys/bus/pci/devices/" + pci;
}

void check_distance(Check& check) {
    for (const GpuAndNic& pair : check.pairs()) {
        const Check::Subject subject{pair.gpu->name, pair.nic->name};
        const char* const type = to_string(pair.path.type);
        switch (pair.path.type) {
            case PathType::unknown:
                check.unknown(subject, pair.path.reason);
                break;
            case PathType::phb:
            case PathType::node:
            case PathType::sys:
                check.fail(subject, type,
                           {.means = pair.path.type == PathType::sys
                                         ? "Transfers cross the interconnect of the processors: "
                                           "3 to 5 times the latency has been measured."
                                         : "Transfers cross a host bridge, which is slower than a "
                                           "PCIe switch and does not permit peer-to-peer DMA on "
                                           "all processors.",
                            .remedy = "Use a NIC below the PCIe switch of the GPU, if there is "
                                      "one."});
                break;
            default:
                check.pass(subject, type);
                break;
        }
    }
}

void check_mapping(Check& check) {
    for (const GpuAndNic& pair : check.pairs()) {
        const Nic* const nic = check.machine().topology().find_nic(pair.nic->name);
        const Check::Subject subject{pair.gpu->name, pair.nic->name};
        // NICs access a GPU with NVLink-C2C through its CPU. Only the NICs below the PCIe switch of
        // the GPU access it over PCIe, so they need MappingKind::pcie.
        const bool below_switch =
            pair.path.type == PathType::pix || pair.path.type == PathType::pxb;
        if (pair.nic->driver == "efa") {
            check.pass(subject, below_switch ? "EFA needs the PCIe mapping"
                                             : "EFA needs the PCIe mapping, or the default mapping "
                                               "if the driver reports NVLink-C2C");
        } else if (pair.path.data_direct) {
            check.pass(subject, "data direct is nearer than the NIC, and needs the PCIe mapping");
        } else if (nic != nullptr && nic->data_direct) {
            check.pass(subject, "the default mapping: data direct is not nearer than the NIC");
        } else if (pair.nic->driver == "mlx5_core" && check.machine().recorded()) {
            check.unknown(subject, "the data-direct function is known only on the machine itself");
        } else {
            check.pass(subject, below_switch ? "the default mapping, or the PCIe mapping if the "
                                               "driver reports NVLink-C2C"
                                             : "the default mapping");
        }
    }
}

void check_assignment(Check& check) {
    const Topology& topology = check.machine().topology();
    std::map<std::string, std::vector<std::string>> gpus_of;
    for (const Gpu& gpu : check.machine().gpus()) {
        for (const RankedNic& nic : topology.nearest({.device = gpu.address})) {
            if (nic.usable && nic.path.type != PathType::unknown) {
                gpus_of[nic.name].push_back(gpu.name);
                break;
            }
        }
    }
    std::string idle;
    for (const NicFiles& nic : check.machine().nics()) {
        const Nic* const found = topology.find_nic(nic.name);
        const bool usable = found != nullptr && found->pci && found->active.value_or(false);
        if (usable && !gpus_of.contains(nic.name)) {
            idle += (idle.empty() ? "" : ", ") + nic.name;
        }
    }
    for (const auto& [nic, gpus] : gpus_of) {
        const std::string found = fmt::format("nearest to {} GPU(s)", gpus.size());
        if (gpus.size() > 1 && !idle.empty()) {
            check.fail(
                {nic}, fmt::format("{}, while no GPU is near {}", found, idle),
                {.means = "The GPUs share the bandwidth of one NIC.",
                 .remedy = "Assign a NIC of its own to each GPU. For long transfers, a farther NIC "
                           "that no other GPU uses is faster than a shared NIC."});
        } else {
            check.pass({nic}, found);
        }
    }
}

/// Returns the type of the IOMMU group of a PCI function, such as "identity" or "DMA-FQ"; empty if
/// the function is not in a group.
std::string iommu_type(const Machine& machine, const std::string& pci) {
    return machine.line(directory_of(pci) + "/iommu_group/type");
}

/// Returns the shell command that adds a parameter to the kernel's command line: by grubby on RHEL
/// and its relatives, otherwise as on Debian. A second execution changes nothing.
std::string boot_with(const Machine& machine, const std::string& parameter) {
    const FileText system = machine.read("/etc/os-release");
    for (const char* const key : {"ID=", "ID_LIKE="}) {
        const std::string name = value_of(system.view(), key).value_or("");
        if (name.find("rhel") != std::string::npos || name.find("fedora") != std::string::npos) {
            return "grubby --update-kernel=ALL --args=" + parameter;
        }
    }
    return fmt::format(
        "grep -q '{0}' /etc/default/grub || sed -i "
        "'s/^GRUB_CMDLINE_LINUX=\"/&{0} /' /etc/default/grub && update-grub",
        parameter);
}

/// Returns the kernel parameter with which the IOMMU does not translate addresses of devices.
std::string passthrough(const Machine& machine) {
    // Only the processors of Arm have this line.
    const FileText processors = machine.read("/proc/cpuinfo");
    return value_of(processors.view(), "CPU implementer") ? "iommu.passthrough=1" : "iommu=pt";
}

void check_iommu_of(Check& check, const std::string& pci, const std::string& name, bool of_nvidia) {
    const std::string type = iommu_type(check.machine(), pci);
    if (type.empty()) {
        check.pass({name}, "no IOMMU translates its addresses");
    } else if (type == "identity") {
        check.pass({name}, type);
    } else if (of_nvidia) {
        check.fail(
            {name}, type,
            {.means = "Peer-to-peer transfers to memory of NVIDIA GPUs may fail or vanish "
                      "behind a translating IOMMU, and large registrations fail with ENOMEM.",
             .remedy = fmt::format("Boot with {}, or register at most 1 GiB at once. Reboot after "
                                   "the command.",
                                   passthrough(check.machine())),
             .command = boot_with(check.machine(), passthrough(check.machine()))});
    } else {
        check.pass({name}, type + ": the kernel maps peer addresses");
    }
}

void check_iommu(Check& check) {
    for (const Gpu* const gpu : check.gpus()) {
        check_iommu_of(check, gpu->name, gpu->name, is_nvidia(gpu));
    }
    for (const NicFiles* const nic : check.nics()) {
        if (!nic->pci.empty() && !nic->software) {
            check_iommu_of(check, nic->pci, nic->name, check.has_nvidia());
        }
    }
}

/// The largest prefetchable BAR of a PCI function: its size in bytes and its index. Size 0: there
/// is none.
struct Bar {
    std::uint64_t size = 0;
    unsigned number = 0;
};

std::uint64_t hexadecimal(std::string_view text) {
    std::uint64_t value = 0;
    if (text.starts_with("0x")) {
        std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
    }
    return value;
}

/// Returns the largest prefetchable BAR of a PCI function; size 0 if there is none. Reads the file
/// "resource": a line has the first address, the last address and the flags. The first six lines
/// are the BARs. The ROM and the BARs of SR-IOV virtual functions follow.
Bar largest_bar(const Machine& machine, const std::string& pci) {
    constexpr std::uint64_t prefetchable = 0x2000; // IORESOURCE_PREFETCH
    constexpr unsigned bars = 6;                   // PCI_STD_NUM_BARS
    const FileText file = machine.read(directory_of(pci) + "/resource");
    Bar largest;
    unsigned number = 0;
    for (const std::string_view line : lines(file.view())) {
        if (number == bars) {
            break;
        }
        const auto values = words(line);
        if (values.size() >= 3 && (hexadecimal(values[2]) & prefetchable) != 0) {
            const std::uint64_t first = hexadecimal(values[0]);
            const std::uint64_t last = hexadecimal(values[1]);
            if (last > first && last - first + 1 > largest.size) {
                largest = {.size = last - first + 1, .number = number};
            }
        }
        ++number;
    }
    return largest;
}

Advice resize_advice() {
    return {.means = "RDMA devices reach only the part of the memory that the BAR covers.",
            .remedy = "Enable Resizable BAR and decoding above 4G in the firmware, then reboot."};
}

void check_amd_bar(Check& check, const Gpu& gpu) {
    const std::string directory = directory_of(gpu.name);
    const auto visible = check.machine().number(directory + "/mem_info_vis_vram_total");
    const auto total = check.machine().number(directory + "/mem_info_vram_total");
    if (!visible || !total) {
        check.unknown({gpu.name}, "amdgpu does not report the size of the memory");
        return;
    }
    const std::string found =
        fmt::format("the BAR covers {} of {} MiB", *visible / mebibyte, *total / mebibyte);
    if (*visible >= *total) {
        check.pass({gpu.name}, found);
    } else {
        check.fail({gpu.name}, found, resize_advice());
    }
}

void check_bar(Check& check) {
    for (const Gpu* const gpu : check.gpus()) {
        if (gpu->vendor == amd_vendor) {
            check_amd_bar(check, *gpu);
            continue;
        }
        const Bar bar = largest_bar(check.machine(), gpu->name);
        if (bar.size == 0) {
            check.unknown({gpu->name}, "sysfs lists no prefetchable BAR");
            continue;
        }
        // Bit n of resourceN_resize is set if the BAR can have 2^n MiB.
        const std::string sizes = check.machine().line(
            fmt::format("{}/resource{}_resize", directory_of(gpu->name), bar.number));
        const std::uint64_t possible = hexadecimal("0x" + sizes) * mebibyte;
        const std::string found = fmt::format("the largest BAR has {} MiB", bar.size / mebibyte);
        constexpr std::uint64_t smallest_of_nvidia = 256 * mebibyte;
        if (is_nvidia(gpu) && bar.size <= smallest_of_nvidia) {
            check.fail({gpu->name}, found + ", less than the memory of the GPU", resize_advice());
        } else if (possible > bar.size * 2 - 1) {
            check.fail({gpu->name}, found + ", and it can be larger", resize_advice());
        } else {
            check.pass({gpu->name}, found);
        }
    }
}

/// Compares a current and a maximum value of the PCIe link, such as the width.
/// @return for example "width 8 of 16"; empty if the values are equal or not known
std::string below_maximum(const Machine& machine, const std::string& pci, const char* what) {
    const std::string directory = directory_of(pci);
    const std::string now = machine.line(fmt::format("{}/current_link_{}", directory, what));
    const std::string most = machine.line(fmt::format("{}/max_link_{}", directory, what));
    if (now.empty() || most.empty() || now == most || most == "255" || most == "0") {
        return {};
    }
    return fmt::format("{} {} of {}", what, now, most);
}

void check_link_of(Check& check, const std::string& pci, const std::string& name, bool idle_slow) {
    std::string found = below_maximum(check.machine(), pci, "width");
    if (!idle_slow) {
        const std::string speed = below_maximum(check.machine(), pci, "speed");
        found += (found.empty() || speed.empty() ? "" : ", ") + speed;
    }
    if (found.empty()) {
        const std::string width = check.machine().line(directory_of(pci) + "/current_link_width");
        if (!width.empty()) {
            check.pass({name}, "width " + width);
        }
        return;
    }
    check.fail({name}, found,
               {.means = "The PCIe link limits the bandwidth.",
                .remedy = "Move the card to a slot that has all lanes, seat it again, or correct "
                          "the settings of the slot in the firmware."});
}

void check_link(Check& check) {
    for (const Gpu* const gpu : check.gpus()) {
        // An idle GPU lowers the speed of its link, so a low speed is not a fault.
        check_link_of(check, gpu->name, gpu->name, true);
    }
    for (const NicFiles* const nic : check.nics()) {
        if (!nic->pci.empty() && !nic->software) {
            check_link_of(check, nic->pci, nic->name, false);
        }
    }
}

constexpr std::array paths_list{
    Condition{"C-28", Severity::no_peer_to_peer, "GPU and NIC are below one PCIe switch",
              "NCCL, src/graph/paths.cc; Mooncake issue 1086", check_distance},
    Condition{"C-29", Severity::no_peer_to_peer, "the mapping that the pair needs is known",
              "libfabric pull request 12864, torchcomms issue 3104", check_mapping},
    Condition{"C-41", Severity::slows, "each GPU has a NIC of its own", "uccl issue 160",
              check_assignment},
    Condition{"C-32", Severity::no_peer_to_peer, "the IOMMU passes peer-to-peer DMA",
              "open-gpu-kernel-modules issue 1324, uccl issue 761", check_iommu},
    Condition{"C-34", Severity::no_peer_to_peer, "the BAR covers the memory of the GPU",
              "Linux, Documentation/gpu/amdgpu", check_bar},
    Condition{"C-38", Severity::slows, "the PCIe link has its full width and speed",
              "Mooncake issue 1974", check_link},
};

} // namespace

ConditionGroup path_conditions() noexcept {
    return {.title = "Paths between GPUs and NICs", .conditions = paths_list};
}

} // namespace rdmabuf::tools::doctor
