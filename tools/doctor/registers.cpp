// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` that read PCI configuration registers. Only root can read these
// registers.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "condition.hpp"
#include "pci_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::doctor {

namespace {

constexpr const char* only_root = "only root can read the registers";
const Advice run_as_root{.means = {}, .remedy = "Run rdmabuf doctor as root.", .command = {}};

/// A PCI function through which a ConnectX-8 accesses the memory of a GPU below the same root port,
/// as in GB300, and the bridges on the way from this function to the GPU. "Direct NIC" is NVIDIA's
/// name.
struct DirectNic {
    std::string function;
    std::string gpu;
    /// The PCI address of the root port above both `function` and `gpu`.
    std::string root_port;
    /// The downstream port toward the function, in the PCIe switch above both the function and the
    /// GPU.
    std::string function_port;
    /// The downstream port of the same switch toward the GPU.
    std::string gpu_port;
};

std::vector<DirectNic> direct_nics(const Machine& machine) {
    constexpr std::uint32_t dma_controller = 0x2100;
    std::vector<DirectNic> all;
    for (const PciFunction& function : machine.topology().pci_functions()) {
        if (!function.identity || function.identity->vendor != mellanox_vendor ||
            function.identity->device != dma_controller) {
            continue;
        }
        for (const Gpu& gpu : machine.gpus()) {
            const PciFunction* const found = machine.topology().find_pci_function(gpu.address);
            const auto& here = function.ancestors;
            const auto& there = found->ancestors;
            // The first two ancestors are the host bridge and the root port. Both must be common.
            const auto part = std::ranges::mismatch(here, there);
            if (part.in1 - here.begin() >= 2 && part.in1 != here.end() && part.in2 != there.end()) {
                all.push_back({.function = to_string(function.address),
                               .gpu = gpu.name,
                               .root_port = here[1],
                               .function_port = *part.in1,
                               .gpu_port = *part.in2});
            }
        }
    }
    return all;
}

void check_direct_nics(Check& check) {
    // Bits of ACS Control.
    constexpr unsigned validation = 0x01;
    constexpr unsigned request_redirect = 0x04;
    constexpr unsigned completion_redirect = 0x08;
    constexpr unsigned forwarding = 0x10;
    constexpr unsigned all = validation | request_redirect | completion_redirect | forwarding;
    for (const DirectNic& nic : direct_nics(check.machine())) {
        const std::array<std::pair<std::string, unsigned>, 3> ports{
            {{nic.root_port, all & ~validation},
             {nic.function_port, all & ~request_redirect},
             {nic.gpu_port, all & ~completion_redirect}}};
        for (const auto& [port, wanted] : ports) {
            const PciConfig config(check.machine(), port);
            const auto control = config.acs_control();
            if (!config.complete()) {
                check.unknown({port}, only_root, run_as_root);
            } else if (control && (*control & all) == wanted) {
                check.pass({port}, fmt::format("ACS control {:#06x}", *control));
            } else {
                check.fail(
                    {port},
                    control
                        ? fmt::format("ACS control {:#06x}, of which the bits {:#04x} have to be "
                                      "{:#04x}",
                                      *control, all, wanted)
                        : "no ACS",
                    {.means =
                         fmt::format("{} cannot access the memory of {} directly: registrations "
                                     "fail with errno 524, or transfers are slow.",
                                     nic.function, nic.gpu),
                     .remedy =
                         "Let rdma_topo of rdma-core write the setting for the kernel's command "
                         "line, and reboot.",
                     .command = "rdma_topo write-grub-acs"});
            }
        }
    }
}

void check_acs(Check& check) {
    constexpr unsigned redirects = 0x04 | 0x08 | 0x20;
    std::vector<std::string> redirecting;
    std::vector<std::string> hidden;
    std::set<std::string> bridges;
    for (const GpuAndNic& pair : check.pairs()) {
        const auto between = bridges_between(check.machine().topology(), *pair.gpu, *pair.nic);
        bridges.insert(between.begin(), between.end());
    }
    for (const DirectNic& nic : direct_nics(check.machine())) {
        // The correct ACS settings of a direct NIC (see DirectNic) redirect some requests or
        // completions, which this check would report as a failure. Condition C-56 checks these
        // settings. Therefore skip the root port of the direct NIC and all functions below it.
        for (const PciFunction& function : check.machine().topology().pci_functions()) {
            if (std::ranges::count(function.ancestors, nic.root_port) > 0) {
                bridges.erase(to_string(function.address));
            }
        }
        bridges.erase(nic.root_port);
    }
    for (const std::string& bridge : bridges) {
        const PciConfig config(check.machine(), bridge);
        if (!config.complete()) {
            hidden.push_back(bridge);
            continue;
        }
        const auto control = config.acs_control();
        if (!control || (*control & redirects) == 0) {
            check.pass({bridge}, control ? fmt::format("ACS control {:#06x}", *control) : "no ACS");
        } else if (check.machine().virtual_machine()) {
            check.fail({bridge}, fmt::format("ACS control {:#06x}", *control),
                       {.means = "Transfers between the devices go through the host bridge.",
                        .remedy = "In a virtual machine ACS must stay on: enable ATS (C-37)."});
        } else {
            redirecting.push_back(bridge);
        }
    }
    for (const std::string& bridge : redirecting) {
        const unsigned control = PciConfig(check.machine(), bridge).acs_control().value_or(0);
        // The kernel uses only the last parameter of this name, so one parameter has to list all
        // bridges.
        const std::string keep =
            bridge == redirecting.front()
                ? fmt::format(
                      "boot with \"pci=disable_acs_redir={}\", or disable ACS in the "
                      "firmware.",
                      fmt::join(redirecting, ";"))
                : "see " + redirecting.front() + ".";
        check.fail({bridge}, fmt::format("ACS control {:#06x}", control),
                   {.means = "Transfers between the devices go through the host bridge, where they "
                             "are slow or get lost.",
                    .remedy = "Disable the redirection. To keep it disabled, " + keep,
                    .command = fmt::format("setpci -s {} ECAP_ACS+6.w={:04x}", bridge,
                                           control & ~redirects)});
    }
    if (!hidden.empty()) {
        Advice advice = run_as_root;
        advice.remedy +=
            " The command prints the ACS control of each bridge; in a line with "
            "ReqRedir+, CmpltRedir+ or EgressCtrl+, ACS redirects.";
        advice.command =
            fmt::format("for bridge in {}; do lspci -vvv -s $bridge | grep ACSCtl; done",
                        fmt::join(hidden, " "));
        check.unknown(hidden, only_root, std::move(advice));
    }
}

/// Returns the configuration space of a NIC; nullopt if the NIC is not a PCI function or is
/// software. If no more than the first 64 bytes can be read (the kernel shows the rest only to
/// root), adds a finding with Verdict::unknown and returns nullopt.
std::optional<PciConfig> config_of(Check& check, const NicFiles& nic) {
    if (nic.pci.empty() || nic.software) {
        return std::nullopt;
    }
    PciConfig config(check.machine(), nic.pci);
    if (!config.complete()) {
        check.unknown({nic.name}, only_root, run_as_root);
        return std::nullopt;
    }
    return config;
}

void check_ats(Check& check) {
    if (!check.machine().virtual_machine() || check.gpus().empty()) {
        return;
    }
    constexpr unsigned enabled = 0x8000;
    for (const NicFiles* const nic : check.nics()) {
        // The instances of clouds whose NICs have no ATS, such as EFA, have GPUDirect RDMA without
        // it.
        const auto config = nic->driver == "mlx5_core" ? config_of(check, *nic) : std::nullopt;
        if (!config) {
            continue;
        }
        const auto control = config->ats_control();
        if (control && (*control & enabled) != 0) {
            check.pass({nic->name}, "ATS is enabled");
        } else {
            check.fail({nic->name}, control ? "ATS is disabled" : "the NIC has no ATS",
                       {.means = "In a virtual machine, transfers between NIC and GPU go through "
                                 "the IOMMU of the host.",
                        .remedy = "Enable ATS in the NIC (mlxconfig set ATS_ENABLED=1). With "
                                  "vSphere also set pciPassthru.allowP2P, RelaxACSforP2P and "
                                  "use64bitMMIO."});
        }
    }
}

/// Calls @p use with the register Device Control of each NIC for which it can be read.
template <class Use>
void for_each_control(Check& check, const Use& use) {
    for (const NicFiles* const nic : check.nics()) {
        const auto config = config_of(check, *nic);
        if (const auto control = config ? config->device_control() : std::nullopt) {
            use(*nic, *control);
        }
    }
}

unsigned payload_size(std::uint16_t control) {
    return 128U << ((control >> 5U) & 7U);
}

/// Returns the first bridge above the NIC whose Max_Payload_Size differs from @p size, and its
/// value, as text; empty if there is none.
std::string other_payload_size(const Machine& machine, const std::string& nic, unsigned size) {
    const Nic* const found = machine.topology().find_nic(nic);
    for (const std::string& bridge : found->pci->ancestors) {
        if (!PciAddress::parse(bridge)) {
            continue;
        }
        const auto control = PciConfig(machine, bridge).device_control();
        if (control && payload_size(*control) != size) {
            return fmt::format("{} has {}", bridge, payload_size(*control));
        }
    }
    return {};
}

void check_request_size(Check& check) {
    for_each_control(check, [&check](const NicFiles& nic, std::uint16_t control) {
        const unsigned read = 128U << ((control >> 12U) & 7U);
        const unsigned payload = payload_size(control);
        const std::string other = other_payload_size(check.machine(), nic.name, payload);
        const std::string found = fmt::format("MaxReadReq {}, MaxPayload {}", read, payload);
        if (nic.driver == "mlx5_core" && read < 4096) {
            constexpr unsigned largest = 0x5000;
            check.fail({nic.name}, found,
                       {.means = "The NIC reads memory in small requests.",
                        .remedy = "Set Max_Read_Request_Size to 4096.",
                        .command = fmt::format("setpci -s {} CAP_EXP+8.w={:04x}", nic.pci,
                                               (control & 0x8fffU) | largest)});
        } else if (!other.empty()) {
            check.fail({nic.name}, fmt::format("{}; {}", found, other),
                       {.means = "The smallest Max_Payload_Size on the path limits all packets.",
                        .remedy = "Boot with pci=pcie_bus_perf, or correct it in the firmware."});
        } else {
            check.pass({nic.name}, found);
        }
    });
}

void check_relaxed_ordering(Check& check) {
    for_each_control(check, [&check](const NicFiles& nic, std::uint16_t control) {
        constexpr unsigned enabled = 0x10;
        if ((control & enabled) != 0) {
            check.pass({nic.name}, "the NIC may set it");
        } else {
            check.fail({nic.name}, "the NIC may not set it",
                       {.means = "Writes through a host bridge of AMD and of some Intel processors "
                                 "are slow.",
                        .remedy = "Enable relaxed ordering in the NIC (mlxconfig set "
                                  "PCI_WR_ORDERING=1), and register with relaxed_ordering = true "
                                  "where the program flushes data.",
                        .command = fmt::format("setpci -s {} CAP_EXP+8.w={:04x}", nic.pci,
                                               control | enabled)});
        }
    });
}

constexpr std::array registers_list{
    Condition{"C-31", Severity::no_peer_to_peer, "ACS passes peer-to-peer DMA directly",
              "NCCL, gpu_troubleshooting.rst", check_acs},
    Condition{"C-56", Severity::no_peer_to_peer, "ACS is that of a direct NIC",
              "rdma-core, kernel-boot/rdma_topo", check_direct_nics},
    Condition{"C-37", Severity::no_peer_to_peer, "the NIC of a virtual machine has ATS",
              "NCCL, gpu_troubleshooting.rst", check_ats},
    Condition{"C-39", Severity::slows, "PCIe requests and payloads are large",
              "holohub tune_system.py", check_request_size},
    Condition{"C-40", Severity::slows, "relaxed ordering is permitted", "ucx issue 9055",
              check_relaxed_ordering},
};

} // namespace

ConditionGroup register_conditions() noexcept {
    return {.title = "PCI registers", .conditions = registers_list};
}

} // namespace rdmabuf::tools::doctor
