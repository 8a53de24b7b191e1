// SPDX-License-Identifier: BSD-3-Clause
#include "nic.hpp"

#include <endian.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
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

/// The number of receive buffers of an endpoint.
constexpr std::uint32_t receive_buffers = 512;
/// The number of work requests that each queue pair of a connection may have in flight.
constexpr std::uint32_t send_depth = 64;

/// Returns the maximum number of connections of an endpoint. Each connection needs a queue pair,
/// and entries for its work requests in the completion queue of the endpoint.
int max_connections(const ibv_device_attr& attributes) {
    // The loopback queue pair of the endpoint, which performs flushes, uses the same completion
    // queue.
    constexpr auto reserved =
        static_cast<int>(receive_buffers + rdmabuf::transport::loopback_completions);
    const int completions = (attributes.max_cqe - reserved) / static_cast<int>(send_depth);
    return std::max(std::min(attributes.max_qp - 1, completions), 1);
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

/// Sets the kinds of memory that can be registered on @p nic. Logs whether GPUDirect RDMA is
/// enabled, and the reasons.
void set_pointers(Nic& nic, const Context& context, const Resolver& resolver,
                  const Settings& settings) {
    const Availability import = context.dmabuf_import();
    const Availability exports = cuda_exports(resolver);
    nic.pointers = abi::pointer_host;
    if ((import && exports) || peer_memory_module_loaded()) {
        nic.pointers |= abi::pointer_cuda;
    } else {
        nic.no_pointers_to_gpus = "import of dma-bufs by " + nic.name + ": " + to_string(import) +
                                  "; export of GPU memory as dma-bufs: " + to_string(exports) +
                                  "; no peer memory module is loaded (nvidia_peermem)";
    }
    // NCCL exports dma-bufs only if this library cannot export them, or if RDMABUF_NCCL_DMABUF is
    // set. The library is preferred because it selects the mapping for each NIC (PCIe or data
    // direct) and caches the registrations.
    if (import && (!exports || settings.nccl_exports)) {
        nic.pointers |= abi::pointer_dmabuf;
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

/// Returns the number of the first active port, counted from 1; std::nullopt if no port is active.
std::optional<std::uint8_t> active_port(const Context& context, std::uint8_t count) {
    for (unsigned port = 1; port <= count; ++port) {
        if (context.port(static_cast<std::uint8_t>(port)).state == IBV_PORT_ACTIVE) {
            return static_cast<std::uint8_t>(port);
        }
    }
    return std::nullopt;
}

rdmabuf::transport::EndpointOptions options_for(std::uint8_t port, const Settings& settings,
                                                const rdmabuf::Topology& topology) {
    rdmabuf::transport::EndpointOptions options;
    options.port = port;
    options.depth = static_cast<std::uint32_t>(abi::max_requests * max_receives);
    // NCCL's LL128 kernels poll for flags that are stored behind the data. They expect that the
    // data is written before the flags, as NICs do for an RDMA write. A copy by the CPU from a
    // bounce buffer does not guarantee this. With the limit 0, no data is sent to a bounce buffer.
    options.eager_limit = 0;
    options.receive_buffers = receive_buffers;
    options.send_depth = send_depth;
    options.send_buffers = 64;
    options.gid_index = settings.gid_index;
    options.pkey_index = settings.pkey_index;
    // NCCL polls connect() and accept() without a time limit, and does other work in between, such
    // as registering memory for hundreds of connections. The end of a process or of a machine is
    // detected by the socket.
    options.handshake = std::chrono::hours(24);
    options.ack_timeout = settings.ack_timeout;
    options.retry_count = settings.retry_count;
    // NCCL does not notify the cache when memory is freed. With this policy, the cache checks on
    // each hit that the GPU allocation is still the one that was registered.
    options.cache.policy = rdmabuf::CachePolicy::checked;
    options.cache.registration.topology = &topology;
    // The cache uses the first path that supports the memory. The path "host" is first, so that
    // host memory that CUDA has pinned is registered without a dma-buf. GPU memory is never
    // registered by this path.
    options.cache.registration.paths =
        peer_memory_module_loaded()
            ? rdmabuf::PathOrder{RegistrationPath::host, RegistrationPath::dmabuf,
                                 RegistrationPath::peermem}
            : rdmabuf::PathOrder{RegistrationPath::host, RegistrationPath::dmabuf};
    return options;
}

/// Returns the properties of a device. If the device cannot be used, logs the reason and returns
/// std::nullopt.
std::optional<Nic> describe(const rdmabuf::Device& device, const Resolver& resolver,
                            const Settings& settings, rdmabuf::Topology& topology,
                            const std::shared_ptr<const rdmabuf::Topology>& shared_topology) {
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
    const bool data_direct = topology.query_data_direct(context).available;
    const auto options = options_for(*port, settings, topology);
    if (auto endpoint = rdmabuf::transport::Endpoint::open(context, resolver, options); !endpoint) {
        return unusable(endpoint.message());
    }
    const ibv_port_attr state = context.port(*port);
    const std::uint64_t guid =
        attributes.sys_image_guid != 0 ? attributes.sys_image_guid : attributes.node_guid;
    // test() reports the size of a message as an int, so a message must be shorter than 2 GiB. The
    // limit is the largest power of two below 2 GiB.
    constexpr std::uint32_t max_message = std::uint32_t{1} << 30U;
    Nic nic{.name = name,
            .members = {},
            .verbs_devices = {name},
            .pci_path = pci_path_of(name),
            .guid = be64toh(guid),
            .port = *port,
            .speed = static_cast<int>(rdmabuf::link_speed(state)),
            .infiniband = state.link_layer == IBV_LINK_LAYER_INFINIBAND,
            .pointers = 0,
            .no_pointers_to_gpus = {},
            // With data direct, data and completions reach memory on different PCIe paths, so the
            // data may become visible after its completion.
            .force_flush = data_direct,
            .max_comms = max_connections(attributes),
            .max_message = max_message,
            .max_region = attributes.max_mr_size,
            .relaxed_ordering = settings.relaxed_ordering,
            .resolver = resolver,
            .topology = shared_topology,
            .options = options};
    set_pointers(nic, context, resolver, settings);
    return nic;
}

void log_nic(const Nic& nic, std::size_t index) {
    const std::string speed =
        nic.speed > 0 ? std::to_string(nic.speed) + " Mbit/s" : "of unknown speed";
    log::info("init", "[" + std::to_string(index) + "] " + nic.name + " port " +
                          std::to_string(nic.port) + ", " + speed + ", " +
                          (nic.pci_path.empty() ? "no PCI device" : nic.pci_path));
}

} // namespace

std::vector<Nic> find_nics(const Settings& settings) {
    const Resolver resolver = Resolver::system();
    const auto topology = std::make_shared<rdmabuf::Topology>(rdmabuf::Topology::read());
    std::vector<Nic> nics;
    for (const rdmabuf::Device& device : rdmabuf::DeviceList()) {
        if (!settings.uses_device(device.name())) {
            continue;
        }
        try {
            if (auto nic = describe(device, resolver, settings, *topology, topology)) {
                // NCCL needs port numbers that are unique on a card. The ports of a card can be
                // separate verbs devices, in which each port has the number 1. Therefore the number
                // of earlier devices with the same GUID is added.
                nic->port += static_cast<int>(
                    std::count_if(nics.begin(), nics.end(),
                                  [&](const Nic& earlier) { return earlier.guid == nic->guid; }));
                nic->members = {static_cast<int>(nics.size())};
                log_nic(*nic, nics.size());
                nics.push_back(*std::move(nic));
            }
        } catch (const rdmabuf::Error& error) {
            log::info("init", "not using " + device.name() + ": " + error.what());
        }
    }
    return nics;
}

std::optional<Nic> merge_nics(std::span<const Nic> all, std::span<const int> members,
                              std::string& reason) {
    const auto refuse = [&reason](std::string text) {
        reason = std::move(text);
        return std::nullopt;
    };
    if (members.empty() || members.size() > rdmabuf::transport::max_rails) {
        return refuse("a merged device has 1 to " + std::to_string(rdmabuf::transport::max_rails) +
                      " devices");
    }
    std::optional<Nic> merged;
    for (const int member : members) {
        if (member < 0 || static_cast<std::size_t>(member) >= all.size() ||
            all[static_cast<std::size_t>(member)].members.size() != 1) {
            return refuse("there is no device " + std::to_string(member) + " to merge");
        }
        if (std::ranges::count(members, member) != 1) {
            return refuse("device " + std::to_string(member) + " is listed twice");
        }
        const Nic& nic = all[static_cast<std::size_t>(member)];
        if (!merged) {
            merged = nic;
            continue;
        }
        if (nic.infiniband != merged->infiniband) {
            return refuse(nic.name + " and " + merged->name + " have different link layers");
        }
        if (nic.options.port != merged->options.port) {
            return refuse(nic.name + " and " + merged->name + " use ports of different numbers");
        }
        merged->name += "+" + nic.name;
        merged->members.push_back(member);
        merged->verbs_devices.push_back(nic.verbs_devices.front());
        merged->speed += nic.speed;
        merged->pointers &= nic.pointers;
        if (!merged->no_pointers_to_gpus.empty() && !nic.no_pointers_to_gpus.empty()) {
            merged->no_pointers_to_gpus += "; ";
        }
        merged->no_pointers_to_gpus += nic.no_pointers_to_gpus;
        merged->force_flush = merged->force_flush || nic.force_flush;
        merged->max_comms = std::min(merged->max_comms, nic.max_comms);
        merged->max_region = std::min(merged->max_region, nic.max_region);
    }
    return merged;
}

rdmabuf::Result<std::shared_ptr<SharedEndpoint>> open_nic(const Nic& nic, const Settings& settings,
                                                          int traffic_class) noexcept {
    auto options = nic.options;
    // As in NCCL's own InfiniBand transport, environment variables have priority over the
    // configuration of the communicator. An InfiniBand network without routers ignores the traffic
    // class; its number then selects the service level.
    const bool configured = traffic_class >= 0 && traffic_class <= 255;
    options.traffic_class = settings.traffic_class.value_or(
        configured ? static_cast<std::uint8_t>(traffic_class) : std::uint8_t{0});
    options.service_level =
        settings.service_level.value_or(nic.infiniband && configured && traffic_class <= 15
                                            ? static_cast<std::uint8_t>(traffic_class)
                                            : std::uint8_t{0});
    auto opened = rdmabuf::attempt([&] {
        std::vector<Context> contexts;
        for (const std::string& name : nic.verbs_devices) {
            contexts.push_back(Context::open(name));
        }
        return contexts;
    });
    if (!opened) {
        return opened.error_info();
    }
    auto endpoint = rdmabuf::transport::Endpoint::open(*opened, nic.resolver, options);
    if (!endpoint) {
        return endpoint.error_info();
    }
    return rdmabuf::attempt(
        [&] { return std::make_shared<SharedEndpoint>(*std::move(endpoint), nic.topology); });
}

} // namespace nccl_net
