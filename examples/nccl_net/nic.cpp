// SPDX-License-Identifier: BSD-3-Clause
#include "nic.hpp"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <rdmabuf/availability.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/device.hpp>
#include <rdmabuf/resolver.hpp>

#include "log.hpp"
#include "nccl_net_abi.hpp"

namespace nccl_net {
namespace {

using rdmabuf::Availability;
using rdmabuf::Context;
using rdmabuf::RegistrationPath;
using rdmabuf::Resolver;

/// Each channel has two queue pairs on a device: one to the peer, and a loopback queue pair for
/// flushes.
constexpr int queue_pairs_of_comm = 2;

/// Returns the rate code of a port. Newer rdma-core has a second field, active_speed_ex, for rate
/// codes that need more than the 8 bits of active_speed.
template <class Port>
unsigned speed_code(const Port& port) {
    if constexpr (requires { port.active_speed_ex; }) {
        return port.active_speed_ex != 0 ? port.active_speed_ex : port.active_speed;
    } else {
        return port.active_speed;
    }
}

/// Returns the speed of a port in Mbit/s, or 0 for an unknown code. InfiniBand defines the codes
/// for the rate of a lane and for the number of lanes; RoCE uses the same codes.
int speed_of(const ibv_port_attr& port) {
    constexpr std::array lane{
        std::pair{1U, 2500},   std::pair{2U, 5000},     std::pair{4U, 10000},
        std::pair{8U, 10000},  std::pair{16U, 14000},   std::pair{32U, 25000},
        std::pair{64U, 50000}, std::pair{128U, 100000}, std::pair{256U, 200000},
    };
    constexpr std::array lanes{std::pair{1U, 1}, std::pair{2U, 4}, std::pair{4U, 8},
                               std::pair{8U, 12}, std::pair{16U, 2}};
    const auto value_of = [](const auto& table, unsigned code) {
        const auto* const found = std::find_if(table.begin(), table.end(),
                                               [code](auto entry) { return entry.first == code; });
        return found == table.end() ? 0 : found->second;
    };
    return value_of(lane, speed_code(port)) * value_of(lanes, port.active_width);
}

/// Returns true if NVIDIA's peer memory module is loaded, also under its older names nv_mem and
/// nv_mem_nc. The directory memory_peers alone is no proof, because it can exist without a module.
bool peer_memory_module_loaded() {
    std::error_code none;
    const std::filesystem::path sys = "/sys";
    return std::filesystem::exists(sys / "module/nvidia_peermem", none) ||
           std::filesystem::exists(sys / "kernel/mm/memory_peers/nv_mem", none) ||
           std::filesystem::exists(sys / "kernel/mm/memory_peers/nv_mem_nc", none);
}

/// Returns the availability of the exporter for GPU memory (CUDA), with a reason if the exporter is
/// not available.
Availability cuda_exports(const Resolver& resolver) {
    for (const auto& exporter : resolver.exporters()) {
        if (exporter->name() == "cuda") {
            return exporter->availability();
        }
    }
    return Availability::no("this library was built without the cuda exporter");
}

/// Sets the kinds of memory that can be registered on @p nic. Logs if GPUDirect RDMA is enabled or
/// disabled, with the reasons.
void look_at_memory(Nic& nic, const Context& context, const Resolver& resolver) {
    const Availability import = context.dmabuf_import();
    nic.pointers = abi::pointer_host;
    if (import) {
        nic.pointers |= abi::pointer_dmabuf;
    }
    const Availability exports = cuda_exports(resolver);
    if ((import && exports) || peer_memory_module_loaded()) {
        nic.pointers |= abi::pointer_cuda;
    } else {
        nic.no_pointers_to_gpus = "import of dma-bufs by " + nic.name + ": " + to_string(import) +
                                  "; export of GPU memory as dma-bufs: " + to_string(exports) +
                                  "; no peer memory module is loaded (nvidia_peermem)";
    }
    if (nic.pointers == abi::pointer_host) {
        log::info("init",
                  "GPU Direct RDMA disabled on " + nic.name + ": " + nic.no_pointers_to_gpus);
    } else {
        const bool addresses = (nic.pointers & abi::pointer_cuda) != 0;
        log::info("init", "GPU Direct RDMA enabled on " + nic.name +
                              ": import of dma-bufs: " + to_string(import) +
                              (addresses ? "; registration by GPU address: yes"
                                         : "; registration by GPU address: " + to_string(exports)));
    }
}

std::string pci_path_of(const std::string& name) {
    std::error_code none;
    const auto link = std::filesystem::path("/sys/class/infiniband") / name / "device";
    return std::filesystem::canonical(link, none).string();
}

/// Returns the number of the first active port, from 1, or nothing if no port is active.
std::optional<std::uint8_t> active_port(const Context& context, std::uint8_t count) {
    for (unsigned port = 1; port <= count; ++port) {
        if (context.port(static_cast<std::uint8_t>(port)).state == IBV_PORT_ACTIVE) {
            return static_cast<std::uint8_t>(port);
        }
    }
    return std::nullopt;
}

rdmabuf::transport::EndpointOptions options_for(std::uint8_t port) {
    rdmabuf::transport::EndpointOptions options;
    options.port = port;
    options.depth = static_cast<std::uint32_t>(abi::max_requests * max_receives);
    // NCCL's LL128 kernels poll for flags that follow the data in memory. An RDMA write stores data
    // and flags in this order; a copy by the CPU from a bounce buffer does not guarantee this
    // order. With the limit 0, no data is sent to a bounce buffer.
    options.eager_limit = 0;
    // NCCL does not report that it frees memory. With this policy the cache checks with the
    // exporter on each hit that the memory is still the one that was registered.
    options.cache.policy = rdmabuf::CachePolicy::checked;
    // Host memory is registered without a dma-buf, also if CUDA has pinned it. rdmabuf never
    // registers GPU memory on the path "host".
    options.cache.registration.paths =
        peer_memory_module_loaded()
            ? rdmabuf::PathOrder{RegistrationPath::host, RegistrationPath::dmabuf,
                                 RegistrationPath::peermem}
            : rdmabuf::PathOrder{RegistrationPath::host, RegistrationPath::dmabuf};
    return options;
}

/// Returns the properties of a device. If the device cannot be used, logs the reason and returns
/// nothing.
std::optional<Nic> describe(const rdmabuf::Device& device, const Resolver& resolver) {
    const std::string name = device.name();
    const auto unusable = [&name](const std::string& reason) {
        log::info("init", "not using " + name + ": " + reason);
        return std::nullopt;
    };
    if (device.native()->transport_type != IBV_TRANSPORT_IB) {
        return unusable("it has no reliable connections of InfiniBand or RoCE");
    }
    const Context context(device);
    const ibv_device_attr attributes = context.attributes().native.orig_attr;
    const auto port = active_port(context, attributes.phys_port_cnt);
    if (!port) {
        return unusable("none of its ports is active");
    }
    const auto options = options_for(*port);
    if (auto endpoint = rdmabuf::transport::Endpoint::open(context, resolver, options); !endpoint) {
        return unusable(endpoint.message());
    }
    const ibv_port_attr state = context.port(*port);
    const std::uint64_t guid =
        attributes.sys_image_guid != 0 ? attributes.sys_image_guid : attributes.node_guid;
    // test() reports the size of a message as an int, so this limit is 1 GiB.
    constexpr std::uint32_t max_message = std::uint32_t{1} << 30U;
    Nic nic{.name = name,
            .pci_path = pci_path_of(name),
            .guid = be64toh(guid),
            .port = *port,
            .speed = speed_of(state),
            .pointers = 0,
            .no_pointers_to_gpus = {},
            .max_comms = attributes.max_qp / queue_pairs_of_comm,
            .max_message = max_message,
            .resolver = resolver,
            .options = options};
    look_at_memory(nic, context, resolver);
    return nic;
}

/// Returns true if RDMABUF_NCCL_DEVICES is not set or contains @p name.
bool wanted(std::string_view name) {
    const char* const list = std::getenv("RDMABUF_NCCL_DEVICES");
    if (list == nullptr || *list == '\0') {
        return true;
    }
    std::istringstream names(list);
    for (std::string one; std::getline(names, one, ',');) {
        if (one == name) {
            return true;
        }
    }
    return false;
}

void tell(const Nic& nic, std::size_t index) {
    const std::string speed =
        nic.speed > 0 ? std::to_string(nic.speed) + " Mbit/s" : "of unknown speed";
    log::info("init", "[" + std::to_string(index) + "] " + nic.name + " port " +
                          std::to_string(nic.port) + ", " + speed + ", " +
                          (nic.pci_path.empty() ? "no PCI device" : nic.pci_path));
}

} // namespace

std::vector<Nic> find_nics() {
    const Resolver resolver = Resolver::system();
    std::vector<Nic> nics;
    for (const rdmabuf::Device& device : rdmabuf::DeviceList()) {
        if (!wanted(device.name())) {
            continue;
        }
        try {
            if (auto nic = describe(device, resolver)) {
                // The ports of one card can be separate verbs devices, whose port numbers are all
                // 1. NCCL needs unique port numbers, so the number of earlier devices with the same
                // GUID is added.
                nic->port += static_cast<int>(
                    std::count_if(nics.begin(), nics.end(),
                                  [&](const Nic& earlier) { return earlier.guid == nic->guid; }));
                tell(*nic, nics.size());
                nics.push_back(*std::move(nic));
            }
        } catch (const rdmabuf::Error& error) {
            log::info("init", "not using " + device.name() + ": " + error.what());
        }
    }
    return nics;
}

rdmabuf::Result<rdmabuf::transport::Endpoint> open_nic(const Nic& nic) noexcept {
    auto context = rdmabuf::attempt([&] { return Context::open(nic.name); });
    if (!context) {
        return context.error_info();
    }
    return rdmabuf::transport::Endpoint::open(*context, nic.resolver, nic.options);
}

} // namespace nccl_net
