// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for RDMA devices and their ports.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include <rdmabuf/quirks.hpp>

#include "../text.hpp"
#include "condition.hpp"
#include "loopback.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

std::string directory_of(const NicFiles& nic) {
    return "/sys/class/infiniband/" + nic.name;
}

/// The kernel module that provides the RDMA devices of NICs of a PCI vendor.
struct RdmaModule {
    std::uint32_t vendor;
    const char* module;
};
constexpr std::array rdma_modules{
    RdmaModule{mellanox_vendor, "mlx5_ib"}, RdmaModule{amazon_vendor, "efa"},
    RdmaModule{0x14e4, "bnxt_re"},          RdmaModule{intel_vendor, "irdma"},
    RdmaModule{0x1414, "mana_ib"},          RdmaModule{0x1dd8, "ionic_rdma"},
};

/// A network function without an RDMA device, of a vendor in rdma_modules.
struct NetworkFunction {
    std::string address;
    const PciFunction* pci;
    /// The module that makes the RDMA device.
    const char* module;
    /// The name of the kernel driver that is bound; empty if none is.
    std::string driver;
};

std::vector<NetworkFunction> functions_without_device(const Machine& machine) {
    constexpr std::uint32_t network_class = 0x02;
    std::vector<NetworkFunction> found;
    for (const PciFunction& function : machine.topology().pci_functions()) {
        const std::string address = to_string(function.address);
        if (!function.identity || function.identity->class_code >> 16U != network_class ||
            std::ranges::find(machine.nics(), address, &NicFiles::pci) != machine.nics().end()) {
            continue;
        }
        const auto* const known =
            std::ranges::find(rdma_modules, function.identity->vendor, &RdmaModule::vendor);
        if (known != rdma_modules.end()) {
            found.push_back(
                {.address = address,
                 .pci = &function,
                 .module = known->module,
                 .driver = machine.link_name("/sys/bus/pci/devices/" + address + "/driver")});
        }
    }
    return found;
}

/// Says how the function can become an RDMA device.
Advice advice_for(const NetworkFunction& function) {
    Advice advice{.means = "Nothing can be registered with this NIC.", .remedy = {}, .command = {}};
    if (function.driver.empty()) {
        advice.remedy = fmt::format(
            "No driver is bound to the network function {}: the kernel log says why its driver did "
            "not take it, or the driver is not loaded.",
            function.address);
    } else if (function.driver == "vfio-pci") {
        advice.remedy = fmt::format(
            "The network function {} is given to a virtual machine or to a driver in user space "
            "(vfio-pci). To use it here, bind its own driver.",
            function.address);
    } else {
        advice.remedy = fmt::format(
            "The network function {} may become an RDMA device: load the module {}. If it does "
            "not, the kernel log has the reason.",
            function.address, function.module);
        advice.command = fmt::format("modprobe {}", function.module);
    }
    return advice;
}

/// Returns true if no function of @p others is nearer to the GPU than @p function, and all RDMA
/// devices are farther away.
bool is_nearest(const Topology& topology, const Gpu& gpu, const NetworkFunction& function,
                const std::vector<NetworkFunction>& others) {
    const auto type_of = [&](const Nic& nic) {
        return topology.path({.device = gpu.address}, nic).type;
    };
    const PathType type = type_of({.name = {}, .pci = *function.pci});
    return std::ranges::all_of(topology.nics(),
                               [&](const Nic& nic) { return type_of(nic) > type; }) &&
           std::ranges::all_of(others, [&](const NetworkFunction& other) {
               return type_of({.name = {}, .pci = *other.pci}) >= type;
           });
}

/// Adds findings on network functions without an RDMA device, while other functions have one.
void check_without_device(Check& check, const std::vector<NetworkFunction>& functions) {
    for (const NetworkFunction& function : functions) {
        bool nearest = false;
        for (const Gpu* const gpu : check.gpus()) {
            if (is_nearest(check.machine().topology(), *gpu, function, functions)) {
                nearest = true;
                check.fail({function.address, gpu->name},
                           "the NIC that is nearest to the GPU has no RDMA device",
                           advice_for(function), Severity::no_peer_to_peer);
            }
        }
        // If mlx5_core is bound, the RDMA device of a bond can belong to another function, which is
        // as near to each GPU.
        if (!nearest && function.driver != "mlx5_core") {
            check.fail({function.address}, "the function has no RDMA device", advice_for(function),
                       Severity::information);
        }
    }
}

void check_exists(Check& check) {
    const auto& nics = check.machine().nics();
    if (!nics.empty()) {
        std::string names;
        for (const NicFiles& nic : nics) {
            names += fmt::format("{}{}{}", names.empty() ? "" : ", ", nic.name,
                                 nic.driver.empty() ? "" : fmt::format(" ({})", nic.driver));
        }
        check.pass({}, names);
        auto functions = functions_without_device(check.machine());
        // Network functions of other vendors need not be RDMA devices.
        std::erase_if(functions, [](const NetworkFunction& function) {
            return function.pci->identity->vendor != mellanox_vendor;
        });
        check_without_device(check, functions);
        return;
    }
    if (!check.machine().has_sysfs()) {
        std::string listed;
        for (const OpenedDevice& device : check.devices().all()) {
            listed +=
                fmt::format("{}{}", listed.empty() ? "; libibverbs lists " : ", ", device.name);
        }
        check.fail({}, "/sys is not mounted" + listed,
                   {.means = "rdmabuf finds the RDMA devices and their properties in sysfs.",
                    .remedy = "Mount sysfs at /sys, in a chroot or container from inside it.",
                    .command = "mount -t sysfs sysfs /sys"});
        return;
    }
    const auto functions = functions_without_device(check.machine());
    Advice advice = functions.empty() ? Advice() : advice_for(functions.front());
    advice.means = "Nothing can be registered and nothing can be transferred.";
    if (functions.empty()) {
        advice.remedy =
            "Install an RDMA NIC and its driver; pass a VF to a virtual machine and the device to "
            "a container. For tests without hardware, run the program under `softverbs run --`.";
    }
    check.fail({},
               check.machine().exists("/sys/class/infiniband")
                   ? "/sys/class/infiniband is empty"
                   : "/sys/class/infiniband does not exist",
               std::move(advice));
}

/// Returns the name of the network interface of a RoCE port; empty if sysfs does not have it.
std::string network_interface(const Machine& machine, const std::string& port) {
    return machine.line(port + "/link_layer") == "InfiniBand"
               ? ""
               : machine.line(port + "/gid_attrs/ndevs/0");
}

void check_port(Check& check, const NicFiles& nic, const std::string& number) {
    const Machine& machine = check.machine();
    const std::string port = directory_of(nic) + "/ports/" + number;
    const std::string state = machine.line(port + "/state");
    const Check::Subject subject{nic.name, "port " + number};
    if (state.starts_with("4:")) {
        check.pass(subject, fmt::format("ACTIVE, {}", machine.line(port + "/rate")));
        return;
    }
    if (state.empty()) {
        check.unknown(subject, "sysfs does not report the state of the port");
        return;
    }
    Advice advice{.means = "Queue pairs on this port cannot transfer data."};
    const std::string interface = network_interface(machine, port);
    const std::string physical = machine.line(port + "/phys_state");
    if (state.starts_with("2:") || state.starts_with("3:")) {
        advice.remedy = "Start a subnet manager: the link is up, but no manager has activated it.";
    } else if (!interface.empty()) {
        advice.remedy =
            fmt::format("Set the network interface {} up, and check its cable.", interface);
        advice.command = fmt::format("ip link set {} up", shell_word(interface));
    } else if (physical.starts_with("3:") && machine.line(port + "/link_layer") == "InfiniBand") {
        advice.remedy = "The port is disabled, so the cable is not the cause: enable the port.";
        advice.command = fmt::format("ibportstate -C {} -D 0 {} enable", shell_word(nic.name),
                                     shell_word(number));
    } else {
        advice.remedy = "Check the cable and the switch port.";
    }
    const std::string found = fmt::format("{}, physical state {}", state, physical);
    if (machine.active_port(nic.name).empty()) {
        check.fail(subject, found, std::move(advice));
    } else {
        check.fail(subject, found, std::move(advice), Severity::information);
    }
}

void check_ports(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        const auto ports = check.machine().list(directory_of(*nic) + "/ports");
        if (ports.empty()) {
            check.unknown({nic->name}, "sysfs lists no port");
        }
        for (const std::string& number : ports) {
            check_port(check, *nic, number);
        }
    }
}

void check_roce_gid(Check& check, const NicFiles& nic, const std::string& number) {
    const Machine& machine = check.machine();
    const std::string port = directory_of(nic) + "/ports/" + number;
    if (machine.line(port + "/link_layer") != "Ethernet") {
        return;
    }
    const Check::Subject subject{nic.name, "port " + number};
    std::string local;
    for (const std::string& index : machine.list(port + "/gid_attrs/types")) {
        const std::string gid = machine.line(fmt::format("{}/gids/{}", port, index));
        if (!machine.line(fmt::format("{}/gid_attrs/types/{}", port, index))
                 .starts_with("RoCE v2") ||
            gid.empty() || gid == "0000:0000:0000:0000:0000:0000:0000:0000") {
            continue;
        }
        if (!gid.starts_with("fe80:")) {
            check.pass(subject, fmt::format("GID {} at index {}", gid, index));
            return;
        }
        local = gid;
    }
    const std::string interface = network_interface(machine, port);
    const std::string name = interface.empty() ? "of the port" : interface;
    Advice advice{.remedy = fmt::format("Give the network interface {} an IP address.", name)};
    if (local.empty()) {
        advice.means = "Queue pairs on this port cannot be connected.";
        check.fail(subject, "the GID table has no RoCE v2 GID", std::move(advice));
    } else {
        advice.means = "Peers behind a router cannot be reached.";
        check.fail(subject, "only the link-local GID " + local, std::move(advice),
                   Severity::information);
    }
}

void check_gids(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        for (const std::string& number : check.machine().list(directory_of(*nic) + "/ports")) {
            check_roce_gid(check, *nic, number);
        }
    }
}

Advice advice_for_objects(int error, bool virtual_machine) {
    Advice advice{.means = "The device is listed but cannot be used."};
    constexpr const char* accelerated_networking =
        "In a virtual machine, this device may be for accelerated networking only: choose an "
        "instance type with RDMA.";
    switch (error) {
        case ENETDOWN:
            advice.remedy = "See the condition on the port, C-06.";
            break;
        case ENOMEM:
            advice.remedy =
                "See the limits of this process (C-24) and of the control group (C-22).";
            break;
        case EPERM:
        case EACCES:
            advice.remedy = virtual_machine ? accelerated_networking
                                            : "The kernel or the device refuses objects to this "
                                              "process: see the condition on the device node "
                                              "(C-20), security modules and the kernel log.";
            break;
        case EINVAL:
            advice.remedy = virtual_machine ? accelerated_networking
                                            : "The provider library and the kernel driver may not "
                                              "fit together: see C-03 and the kernel log.";
            break;
        case EOPNOTSUPP:
            advice.remedy =
                "The device or its driver does not have these objects, such as RC "
                "queue pairs: see what `rdmabuf devices` says of it, and update the "
                "driver and rdma-core.";
            break;
        default:
            advice.remedy = "See the kernel log.";
            break;
    }
    return advice;
}

void check_objects(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        if (check.system() == nullptr) {
            check.unknown({nic->name}, "devices of a recorded machine cannot be opened");
            continue;
        }
        const Context* const context = check.devices().find(nic->name);
        if (context == nullptr && !can_open_node(check.machine(), nic->name)) {
            check.unknown({nic->name}, "the device node cannot be opened (C-20)");
            continue;
        }
        if (context == nullptr) {
            const OpenedDevice* const listed = check.devices().listed(nic->name);
            check.fail({nic->name},
                       listed != nullptr ? listed->message : "libibverbs does not list the device",
                       {.means = "No program of this user can use the device.",
                        .remedy = listed != nullptr
                                      ? "See the condition on the device node, C-20."
                                      : "Install the provider of the device (ibverbs-providers)."});
            continue;
        }
        const LoopbackResult result = send_one_byte(*context);
        if (result.error == 0) {
            check.pass({nic->name}, result.text);
        } else {
            check.fail({nic->name}, result.text,
                       advice_for_objects(result.error, check.machine().virtual_machine()));
        }
    }
}

void check_import_mode(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        if (nic->driver == "softverbs") {
            continue;
        }
        const ImporterQuirk* const quirk = find_importer_quirk(nic->driver);
        const bool software = nic->driver == "rxe" || nic->driver == "siw";
        const Context* const context = check.devices().find(nic->name);
        const bool imports = context != nullptr && context->dmabuf_import();
        const bool not_in_table = software || (quirk != nullptr && quirk->mode == ImportMode::none);
        if (imports && not_in_table) {
            check.pass({nic->name}, fmt::format("this {} imports dma-bufs; that of Linux does not",
                                                nic->driver));
        } else if (quirk == nullptr && !software) {
            check.unknown({nic->name}, fmt::format("the driver {} is not in the table",
                                                   nic->driver.empty() ? "?" : nic->driver));
        } else if (not_in_table) {
            check.fail({nic->name}, fmt::format("{} imports no dma-bufs", nic->driver),
                       {.means = "Only host memory can be registered on this device.",
                        .remedy = "Use another NIC. For tests without hardware, run the program "
                                  "under `softverbs run --`."});
        } else if (quirk->mode == ImportMode::follows_moves) {
            check.pass({nic->name}, fmt::format("{} follows moves", nic->driver));
        } else {
            check.pass({nic->name},
                       fmt::format("{} pins dma-bufs: NIC memory cannot be imported, and amdgpu "
                                   "before Linux 6.15 moves its memory to the host",
                                   nic->driver));
        }
    }
}

void check_scatter_to_cqe(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        if (nic->driver != "mlx5_core") {
            continue;
        }
        // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
        const char* const set =
            check.machine().recorded() ? nullptr : std::getenv("MLX5_SCATTER_TO_CQE");
        if (set != nullptr && std::string_view(set) == "0") {
            check.pass({nic->name}, "MLX5_SCATTER_TO_CQE=0");
        } else {
            check.unknown(
                {nic->name}, "it depends on the program",
                {.means = "Queue pairs of this library do not use scatter-to-CQE. With the queue "
                          "pairs of other programs, the CPU copies small receives to the address "
                          "in the request, which fails for device memory.",
                 .remedy = "Set MLX5_SCATTER_TO_CQE=0 for programs that create their own queue "
                           "pairs."});
        }
    }
}

void check_efa(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        const Context* const context = check.devices().find(nic->name);
        const bool srd = context != nullptr && context->srd().available;
        if (nic->driver != "efa" && !srd) {
            continue;
        }
        const std::string p2p = check.machine().line(directory_of(*nic) + "/device/p2p");
        const std::string memory = p2p.empty() ? "" : ", peer memory of " + p2p;
        if (!srd) {
            check.unknown({nic->name}, "efadv_query_device(3) needs the open device" + memory);
            continue;
        }
        const SrdAttributes attributes = context->srd_attributes();
        if (attributes.rdma_read && attributes.rdma_write) {
            check.pass({nic->name},
                       "SRD queue pairs read and write; there are no RC queue pairs" + memory);
        } else {
            check.fail(
                {nic->name},
                fmt::format("RDMA read: {}, RDMA write: {}", attributes.rdma_read ? "yes" : "no",
                            attributes.rdma_write ? "yes" : "no"),
                {.means = "One-sided operations are not possible in both directions.",
                 .remedy = "Choose an instance type whose EFA has RDMA read and write, or "
                           "use send and receive only."});
        }
    }
}

constexpr std::array nics_list{
    Condition{"C-05", Severity::blocks, "an RDMA device exists",
              "Linux, Documentation/ABI/stable/sysfs-class-infiniband", check_exists},
    Condition{"C-06", Severity::blocks, "the port is active", "ibv_query_port(3)", check_ports},
    Condition{"C-07", Severity::blocks, "the RoCE port has a routable GID",
              "nccl issue 769, uccl issue 803", check_gids},
    Condition{"C-08", Severity::blocks, "verbs objects can be made, and a byte arrives",
              "DingoCache issue 374", check_objects},
    Condition{"C-10", Severity::blocks, "the driver imports dma-bufs",
              "rdmabuf, include/rdmabuf/quirks.hpp", check_import_mode, 0, /*only_dmabufs=*/true},
    Condition{"C-44", Severity::blocks, "small receives are not copied by the CPU",
              "mlx5dv_create_qp(3)", check_scatter_to_cqe},
    Condition{"C-52", Severity::blocks, "EFA has RDMA read and write",
              "efadv_query_device(3), ucx issue 10966", check_efa},
};

} // namespace

ConditionGroup nic_conditions() noexcept {
    return {.title = "RDMA devices", .conditions = nics_list};
}

} // namespace rdmabuf::tools::doctor
