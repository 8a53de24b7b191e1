// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for the kernel: its modules, its configuration and its log.

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "condition.hpp"
#include "kernel_files.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

void check_uverbs(Check& check) {
    const std::string abi = check.machine().line("/sys/class/infiniband_verbs/abi_version");
    if (!abi.empty()) {
        check.pass({}, fmt::format("ABI version {}", abi));
        return;
    }
    if (!check.machine().has_sysfs()) {
        check.unknown({}, "/sys is not mounted");
        return;
    }
    check.fail({}, "/sys/class/infiniband_verbs/abi_version does not exist",
               {.means = "Programs cannot use RDMA devices.",
                .remedy = "Load the module ib_uverbs.",
                .command = "modprobe ib_uverbs"});
}

constexpr const char* first_with_dmabufs =
    "Linux 5.12 and rdma-core 34 are the first versions with dma-bufs; each driver has its own "
    "first version.";

/// Returns true if the kernel's own modules cannot register dma-bufs, and no others are loaded.
bool is_too_old(const Machine& machine) {
    const std::string release = machine.kernel_release();
    // Linux can register dma-bufs since 5.12. So can the kernel 4.18 of RHEL 8, and the modules of
    // MLNX_OFED and DOCA-OFED on any kernel; these modules depend on mlx_compat.
    return !release.empty() && first_numbers(release) < std::pair(5U, 12U) &&
           release.find(".el8") == std::string::npos && !machine.exists("/sys/module/mlx_compat");
}

void check_dmabuf_import(Check& check) {
    const bool too_old = is_too_old(check.machine());
    for (const NicFiles* const nic : check.nics()) {
        const Context* const context = check.devices().find(nic->name);
        if (context == nullptr && too_old) {
            check.fail({nic->name}, "kernel " + check.machine().kernel_release(),
                       {.means = "No dma-buf can be registered on this device.",
                        .remedy = first_with_dmabufs});
            continue;
        }
        if (context == nullptr) {
            check.unknown({nic->name}, check.machine().recorded()
                                           ? fmt::format("only a registration shows it; kernel {}",
                                                         check.machine().kernel_release())
                                           : "the device cannot be opened");
            continue;
        }
        const Availability import = context->dmabuf_import();
        if (import) {
            check.pass({nic->name}, import.reason.empty()
                                        ? "ibv_reg_dmabuf_mr() returns EBADF for descriptor -1"
                                        : import.reason);
        } else {
            check.fail({nic->name}, import.reason,
                       {.means = "No dma-buf can be registered on this device.",
                        .remedy = import.remedy.empty() ? first_with_dmabufs : import.remedy});
        }
    }
}

void check_on_demand_paging(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        if (nic->driver != "mlx5_core") {
            continue;
        }
        const KernelOption option =
            read_kernel_option(check.machine(), "CONFIG_INFINIBAND_ON_DEMAND_PAGING");
        if (option.state == KernelOption::State::on) {
            check.pass({nic->name}, option.where);
        } else if (option.state == KernelOption::State::off) {
            check.fail({nic->name}, "off in " + option.where,
                       {.means = "The registration of a dma-buf fails with EOPNOTSUPP.",
                        .remedy = "Boot a kernel with CONFIG_INFINIBAND_ON_DEMAND_PAGING."});
        } else {
            check.unknown({nic->name}, option.where);
        }
    }
}

void check_peer_to_peer(Check& check) {
    if (check.gpus().empty()) {
        return;
    }
    const KernelOption option = read_kernel_option(check.machine(), "CONFIG_PCI_P2PDMA");
    if (option.state == KernelOption::State::on) {
        check.pass({}, option.where);
    } else if (option.state == KernelOption::State::off &&
               std::ranges::all_of(check.gpus(), is_nvidia)) {
        check.pass({}, "off in " + option.where +
                           "; the driver of NVIDIA does not need it. VFIO and the export of NIC "
                           "memory do.");
    } else if (option.state == KernelOption::State::off) {
        check.fail({}, "off in " + option.where,
                   {.means = "amdgpu, xe, VFIO and NIC memory move the data to system memory or "
                             "refuse the export.",
                    .remedy = "Boot a kernel with CONFIG_PCI_P2PDMA."});
    } else {
        check.unknown({}, option.where);
    }
}

/// Returns the pair whose GPU and NIC a line of the kernel log names; nullptr if there is none.
const GpuAndNic* pair_in(const Check& check, std::string_view line) {
    const auto is_in = [line](const std::string& address) {
        return !address.empty() && line.find(address) != std::string_view::npos;
    };
    for (const GpuAndNic& pair : check.pairs()) {
        if (is_in(pair.gpu->name) && is_in(pair.nic->pci)) {
            return &pair;
        }
    }
    return nullptr;
}

void check_host_bridge(Check& check) {
    if (check.pairs().empty()) {
        return;
    }
    const KernelLog log = read_kernel_log(check.machine());
    if (!log.text) {
        check.unknown({}, log.reason,
                      {.remedy = "Run rdmabuf doctor as root.",
                       .command = "dmesg | grep -E 'P2PDMA whitelist|peer-to-peer DMA'"});
        return;
    }
    const Advice move{
        .means = "The kernel does not permit peer-to-peer DMA through this host bridge.",
        .remedy =
            "Move one card below the same PCIe switch as the other; no setting corrects this."};
    const Advice disable{.means =
                             "The kernel does not permit peer-to-peer DMA, because bridges "
                             "redirect it by ACS.",
                         .remedy = "Disable the redirection (C-31)."};
    const GpuAndNic* redirected = nullptr; // The kernel logs the reason before the result.
    std::set<const GpuAndNic*> failed;
    for (const std::string_view line : lines(*log.text)) {
        if (line.find(log_no_whitelist) != std::string_view::npos) {
            check.fail({}, std::string(trimmed(line)), move);
            return;
        }
        const GpuAndNic* const pair = pair_in(check, line);
        if (pair == nullptr) {
            continue; // Other devices, such as NVMe drives, do not concern RDMA.
        }
        if (line.find(log_acs_redirect) != std::string_view::npos) {
            redirected = pair;
        } else if (line.find(log_no_peer_to_peer) != std::string_view::npos &&
                   failed.insert(pair).second) {
            check.fail({pair->gpu->name, pair->nic->name}, std::string(trimmed(line)),
                       pair == redirected ? disable : move);
        }
    }
    if (failed.empty()) {
        check.pass({}, "the kernel log names no host bridge");
    }
}

void check_real_machine(Check& check) {
    if (check.pairs().empty()) {
        return;
    }
    bool flat = false;
    for (const GpuAndNic& pair : check.pairs()) {
        flat = flat || pair.path.type == PathType::unknown;
    }
    if (check.machine().virtual_machine()) {
        check.unknown(
            {}, "a hypervisor runs this machine",
            {.means = "The PCI tree may be virtual, so distances in it can be wrong.",
             .remedy = "Decide by the proofs below and by the documents of the provider."});
    } else if (flat) {
        check.fail({}, "sysfs does not show the bridges above the devices",
                   {.means = "Distances between GPUs and NICs are not known.",
                    .remedy = "Mount the sysfs of the host in the container."});
    } else {
        check.pass({}, "no hypervisor");
    }
}

/// Adds no finding if the machine is not recognised as a confidential guest: older kernels do not
/// show that they run in a guest of SEV-SNP.
void check_confidential_guest(Check& check) {
    const bool tdx = check.machine().has_processor_flag("tdx_guest");
    if (!tdx && !check.machine().exists("/sys/devices/system/cpu/sev/vmpl")) {
        return;
    }
    check.fail({}, tdx ? "a guest of Intel TDX" : "a guest of AMD SEV-SNP",
               {.means = "Devices cannot access the private memory of a confidential guest. The "
                         "driver of an NVIDIA GPU in confidential mode exports no dma-bufs.",
                .remedy = "Transfer memory that the guest shares with devices: of the dma-heap "
                          "system_cc_shared or, on mlx5, of ibv_alloc_buf()."});
}

void check_gvisor(Check& check) {
    const std::string version = check.machine().line("/proc/version");
    if (version.find("gVisor") == std::string::npos) {
        return;
    }
    check.fail({}, version,
               {.means = "gVisor passes only the ioctls to a driver that it knows.",
                .remedy = "Enable RDMA in gVisor (nvproxy exports dma-bufs since July 2026)."});
}

void check_page_size(Check& check) {
    const auto size = read_page_size(check.machine());
    if (!size) {
        check.unknown({}, "/proc/self/smaps has no KernelPageSize");
    } else if (*size == 4096) {
        check.pass({}, "4 KiB");
    } else {
        check.fail({}, fmt::format("{} KiB", *size / 1024),
                   {.means = "Programs that align addresses to 4096 bytes get EINVAL.",
                    .remedy = "Align by sysconf(_SC_PAGESIZE), as this library does."});
    }
}

constexpr std::array kernel_list{
    Condition{"C-04", Severity::blocks, "the kernel has ib_uverbs",
              "Linux, drivers/infiniband/core/uverbs_main.c", check_uverbs},
    Condition{"C-09", Severity::blocks, "kernel and driver import dma-bufs",
              "Linux, drivers/infiniband/core/uverbs_std_types_mr.c", check_dmabuf_import, 0,
              /*only_dmabufs=*/true},
    Condition{"C-11", Severity::blocks, "the kernel has on-demand paging for mlx5",
              "Linux, drivers/infiniband/hw/mlx5/mr.c", check_on_demand_paging, 0,
              /*only_dmabufs=*/true},
    Condition{"C-30", Severity::no_peer_to_peer, "the kernel has PCI peer-to-peer DMA",
              "Linux, drivers/pci/Kconfig; ucx issue 11540", check_peer_to_peer},
    Condition{"C-33", Severity::no_peer_to_peer, "the host bridge permits peer-to-peer DMA",
              "Linux, drivers/pci/p2pdma.c", check_host_bridge},
    Condition{"C-26", Severity::information, "sysfs shows the real distances",
              "NCCL, gpu_troubleshooting.rst", check_real_machine},
    Condition{"C-62", Severity::information, "devices can access the memory of the machine",
              "Linux, Documentation/ABI/testing/sysfs-devices-system-cpu",
              check_confidential_guest},
    Condition{"C-27", Severity::information, "the sandbox passes the ioctls of drivers",
              "gVisor issue 13736", check_gvisor},
    Condition{"C-42", Severity::slows, "pages have 4 KiB", "torchcomms issue 1054",
              check_page_size},
};

} // namespace

ConditionGroup kernel_conditions() noexcept {
    return {.title = "Kernel", .conditions = kernel_list};
}

} // namespace rdmabuf::tools::doctor
