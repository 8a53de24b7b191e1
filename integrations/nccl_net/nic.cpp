// SPDX-License-Identifier: BSD-3-Clause
#include "nic.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <tuple>
#include <utility>

#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/resolver.hpp>

#include "communicator.hpp"
#include "log.hpp"
#include "nccl_net_abi.hpp"

namespace nccl_net {
namespace {

using rdmabuf::Availability;
using rdmabuf::Context;
using rdmabuf::RegistrationPath;
using rdmabuf::Resolver;

constexpr std::uint32_t receive_buffers = 512;
/// The maximum number of outstanding work requests of each queue pair.
constexpr std::uint32_t send_depth = 64;

/// Returns the maximum number of connections of an endpoint. Each connection needs queue pairs, and
/// entries for their work requests in the completion queue of the endpoint.
int max_connections(const ibv_device_attr& attributes,
                    const rdmabuf::transport::EndpointOptions& options) {
    // The completion queue entries for the receive buffers, and for the loopback queue pair of the
    // endpoint, which performs flushes.
    constexpr auto reserved =
        static_cast<int>(receive_buffers + rdmabuf::transport::loopback_completions);
    const int completions = (attributes.max_cqe - reserved) / static_cast<int>(send_depth);
    return std::max(std::min(attributes.max_qp - 1, completions) /
                        static_cast<int>(options.queue_pairs_per_device),
                    1);
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

/// Returns a resolver that has only the exporter of CUDA memory, or no exporter if this library was
/// built without that one.
Resolver cuda_resolver() {
    const Resolver all = Resolver::system();
    Resolver cuda;
    for (const auto& exporter : all.exporters()) {
        if (exporter->name() == "cuda") {
            cuda.add(exporter);
        }
    }
    return cuda;
}

/// Sets the kinds of memory that can be registered on @p nic. Logs whether GPUDirect RDMA is
/// enabled, and the reasons.
void set_pointers(Nic& nic, const Context& context, const Settings& settings) {
    const Availability import = context.dmabuf_import();
    const Availability exports =
        nic.resolver.exporters().empty()
            ? Availability::no("this library was built without the cuda exporter")
            : nic.resolver.exporters().front()->availability();
    const bool peer_memory = peer_memory_module_loaded();
    // A registration uses the first path that supports the memory. The path "host" is first, so
    // that host memory that CUDA has pinned is registered without a dma-buf. GPU memory is never
    // registered by this path.
    nic.registration.paths =
        peer_memory ? rdmabuf::PathOrder{RegistrationPath::host, RegistrationPath::dmabuf,
                                         RegistrationPath::peermem}
                    : rdmabuf::PathOrder{RegistrationPath::host, RegistrationPath::dmabuf};
    nic.pointers = abi::pointer_host;
    if ((import && exports) || peer_memory) {
        nic.pointers |= abi::pointer_cuda;
    }
    // NCCL exports dma-bufs only if this library cannot export them, or if RDMABUF_NCCL_DMABUF is
    // set. By default, this library exports them, because it selects the mapping for each NIC (PCIe
    // or data direct).
    if (import && (!exports || settings.nccl_exports)) {
        nic.pointers |= abi::pointer_dmabuf;
    }
    log::info("init", std::string("GPU Direct RDMA ") +
                          (nic.pointers == abi::pointer_host ? "disabled" : "enabled") + " on " +
                          nic.name + ": import of dma-bufs by " + nic.name + ": " +
                          to_string(import) +
                          "; export of GPU memory as dma-bufs: " + to_string(exports) +
                          "; peer memory module (nvidia_peermem): " + (peer_memory ? "yes" : "no"));
}

/// Sets the PCI address and the PCI path. If the NIC has a data-direct function, adds "_dma" to the
/// name. See Nic::name and Nic::pci_path.
void set_pci_path(Nic& nic, const rdmabuf::Topology& topology, bool merge_functions) {
    std::error_code none;
    const auto link = std::filesystem::path("/sys/class/infiniband") / nic.name / "device";
    const std::filesystem::path path = std::filesystem::canonical(link, none);
    nic.pci_address = path.filename().string();
    if (const rdmabuf::Nic* const known = topology.find_nic(nic.name);
        known != nullptr && known->data_direct) {
        nic.name += "_dma";
        nic.pci_path = "/sys/devices/";
        for (const std::string& ancestor : known->data_direct->ancestors) {
            nic.pci_path += ancestor + "/";
        }
        nic.pci_path += to_string(known->data_direct->address);
        return;
    }
    nic.pci_path = card_path(path.string(), merge_functions);
}

rdmabuf::transport::EndpointOptions options_for(const Context& context, std::uint8_t port,
                                                const Settings& settings) {
    rdmabuf::transport::EndpointOptions options;
    options.port = port;
    options.depth = Communicator::pool_size * max_receives;
    // NCCL's LL128 kernels poll for flags that are stored behind the data. They expect that the
    // data is written before the flags, as NICs do for an RDMA write. A copy by the CPU from a
    // bounce buffer does not guarantee this. With the limit 0, no data is sent to a bounce buffer.
    options.eager_limit = 0;
    options.receive_buffers = receive_buffers;
    options.send_depth = send_depth;
    options.send_buffers = 64;
    options.queue_pairs_per_device = settings.queue_pairs;
    options.gid_index = settings.gid_index_of(context, port);
    options.pkey_index = settings.pkey_index;
    // NCCL polls connect() and accept() without a time limit, and does other work in between, such
    // as registering memory for hundreds of connections. The limit for the handshake can be long,
    // because the socket detects the end of the peer process or machine.
    options.handshake = std::chrono::hours(24);
    options.ack_timeout = settings.ack_timeout;
    options.retry_count = settings.retry_count;
    return options;
}

/// Checks that the tables of the port contain the GID index and the partition key index that the
/// user has set. If one of the indices is too large, logs a warning and returns false.
bool has_indices(const std::string& device, const ibv_port_attr& port,
                 const rdmabuf::transport::EndpointOptions& options) {
    const auto is_in = [&device](const char* variable, unsigned index, int entries) {
        if (std::cmp_less(index, entries)) {
            return true;
        }
        log::warn("init", "not using " + device + ": " + variable + "=" + std::to_string(index) +
                              ", and the table of the port has " + std::to_string(entries) +
                              " entries");
        return false;
    };
    return (!options.gid_index ||
            is_in("NCCL_IB_GID_INDEX", *options.gid_index, port.gid_tbl_len)) &&
           is_in("NCCL_IB_PKEY", options.pkey_index, port.pkey_tbl_len);
}

/// Returns the properties of a port. If the port cannot be used, logs the reason and returns
/// std::nullopt.
std::optional<Nic> describe(const Context& context, std::uint8_t port, const NameList::Entry* entry,
                            const Resolver& resolver, const Settings& settings,
                            const std::shared_ptr<const rdmabuf::Topology>& topology) {
    const std::string name = context.device_name();
    const ibv_device_attr attributes = context.attributes().native.orig_attr;
    const ibv_port_attr state = context.port(port);
    const auto options = options_for(context, port, settings);
    if (!has_indices(name, state, options)) {
        return std::nullopt;
    }
    if (auto endpoint = rdmabuf::transport::Endpoint::open(context, resolver, options); !endpoint) {
        log::info("init", "not using " + name + ": " + endpoint.message());
        return std::nullopt;
    }
    const std::uint64_t guid =
        attributes.sys_image_guid != 0 ? attributes.sys_image_guid : attributes.node_guid;
    const rdmabuf::Nic* const known = topology->find_nic(name);
    Nic nic{.name = name,
            .members = {},
            .verbs_devices = {name},
            .pci_path = {},
            .pci_address = {},
            .guid = be64toh(guid),
            .port = port,
            .speed = static_cast<int>(rdmabuf::link_speed(state)),
            .infiniband = state.link_layer == IBV_LINK_LAYER_INFINIBAND,
            .pointers = 0,
            // With data direct, data and completions reach memory on different PCIe paths, so the
            // data may become visible after its completion.
            .force_flush = known != nullptr && known->data_direct,
            .max_comms = max_connections(attributes, options),
            .rail = static_cast<std::int16_t>(entry != nullptr ? entry->rail : abi::undefined_id),
            .plane = static_cast<std::int16_t>(entry != nullptr ? entry->plane : abi::undefined_id),
            .resolver = resolver,
            .topology = topology,
            .registration = {.access = rdmabuf::transport::Endpoint::default_access,
                             .topology = topology.get()},
            .options = options};
    if (settings.relaxed_ordering) {
        nic.registration.access |= rdmabuf::Access::relaxed_ordering;
    }
    set_pci_path(nic, *topology, settings.merge_functions);
    set_pointers(nic, context, settings);
    return nic;
}

/// Adds the usable ports of a device to @p nics.
void describe_ports(const rdmabuf::Device& device, const Resolver& resolver,
                    const Settings& settings, const std::shared_ptr<rdmabuf::Topology>& topology,
                    std::vector<Nic>& nics) {
    const auto unusable = [&device](const std::string& reason) {
        log::info("init", "not using " + device.name() + ": " + reason);
    };
    if (device.native()->transport_type != IBV_TRANSPORT_IB) {
        return unusable("it has no reliable connections of InfiniBand or RoCE");
    }
    const Context context(device);
    if (settings.data_direct) {
        static_cast<void>(topology->query_data_direct(context));
    }
    const unsigned count = context.attributes().native.orig_attr.phys_port_cnt;
    bool active = false;
    for (unsigned i = 1; i <= count; ++i) {
        const auto port = static_cast<std::uint8_t>(i);
        const NameList::Entry* entry = nullptr;
        if (!settings.devices.selects(device.name(), port, entry)) {
            active = true; // The user has excluded this port, so no message is needed.
        } else if (context.port(port).state == IBV_PORT_ACTIVE) {
            active = true;
            if (auto nic = describe(context, port, entry, resolver, settings, topology)) {
                nics.push_back(*std::move(nic));
            }
        }
    }
    if (!active) {
        unusable("none of its ports is active");
    }
}

} // namespace

std::string card_path(std::string path, bool merge_functions) {
    // The last four characters are the number of the PCI device, a dot and the number of the PCI
    // function: "00.1".
    constexpr std::size_t device = 4;
    if (path.size() > device) {
        path.back() = '0';
        if (merge_functions) {
            path.replace(path.size() - device, 2, "00");
        }
    }
    return path;
}

bool is_pci_before(const std::string& one, const std::string& other) {
    // Shorter addresses are first, because a PCI domain can have more than four digits.
    const auto key = [](const std::string& address) {
        return std::tuple(address.empty(), address.size(), address);
    };
    return key(one) < key(other);
}

std::vector<Nic> find_nics(const Settings& settings) {
    // NCCL's programs fork, for example the data loaders of PyTorch. With Linux 5.12 and newer,
    // this call does nothing, because the kernel copies the pinned pages of a process at fork(2).
    if (const int error = ::ibv_fork_init(); error != 0) {
        log::info("init", "ibv_fork_init: " + rdmabuf::describe_errno(error));
    }
    const Resolver resolver = cuda_resolver();
    const auto topology = std::make_shared<rdmabuf::Topology>(rdmabuf::Topology::read());
    std::vector<Nic> nics;
    for (const rdmabuf::Device& device : rdmabuf::DeviceList()) {
        try {
            describe_ports(device, resolver, settings, topology, nics);
        } catch (const rdmabuf::Error& error) {
            log::info("init", "not using " + device.name() + ": " + error.what());
        }
    }
    if (settings.pci_order) {
        std::ranges::stable_sort(nics, is_pci_before, &Nic::pci_address);
    }
    for (auto nic = nics.begin(); nic != nics.end(); ++nic) {
        // NCCL needs port numbers that are unique on a card. The ports of a card can be separate
        // verbs devices, in which each port has the number 1. Therefore add the number of earlier
        // entries of `nics` with the same GUID.
        nic->port += static_cast<int>(std::count_if(
            nics.begin(), nic, [&](const Nic& earlier) { return earlier.guid == nic->guid; }));
        nic->members = {static_cast<int>(nic - nics.begin())};
        const std::string speed =
            nic->speed > 0 ? std::to_string(nic->speed) + " Mbit/s" : "of unknown speed";
        log::info("init", "[" + std::to_string(nic->members.front()) + "] " + nic->name + " port " +
                              std::to_string(nic->options.port) + ", " + speed + ", " +
                              (nic->pci_path.empty() ? "no PCI device" : nic->pci_path));
    }
    return nics;
}

rdmabuf::Result<Nic> merge_nics(const std::deque<Nic>& all, std::span<const int> members) {
    const auto refuse = [](const std::string& reason) {
        return rdmabuf::ErrorInfo(EINVAL, "", reason);
    };
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
        if (nic.options.gid_index != merged->options.gid_index) {
            return refuse(nic.name + " and " + merged->name + " use GIDs of different indices");
        }
        merged->name += "+" + nic.name;
        merged->members.push_back(member);
        merged->verbs_devices.push_back(nic.verbs_devices.front());
        merged->speed += nic.speed;
        merged->pointers &= nic.pointers;
        merged->force_flush = merged->force_flush || nic.force_flush;
        merged->max_comms = std::min(merged->max_comms, nic.max_comms);
        merged->rail = merged->rail == nic.rail ? nic.rail : abi::undefined_id;
        merged->plane = merged->plane == nic.plane ? nic.plane : abi::undefined_id;
    }
    merged->options.queue_pairs_per_device = std::min(
        merged->options.queue_pairs_per_device,
        static_cast<std::uint32_t>(rdmabuf::transport::max_channel_rails / members.size()));
    return *std::move(merged);
}

std::shared_ptr<SharedEndpoint> open_nic(const Nic& nic, const Settings& settings,
                                         int traffic_class) {
    auto options = nic.options;
    // As in NCCL's own InfiniBand transport, environment variables have priority over the
    // configuration of the communicator. An InfiniBand network without routers ignores the traffic
    // class. Therefore a configured traffic class up to 15 is also the service level.
    const bool configured = traffic_class >= 0 && traffic_class <= 255;
    options.traffic_class = settings.traffic_class.value_or(
        configured ? static_cast<std::uint8_t>(traffic_class) : std::uint8_t{0});
    options.service_level =
        settings.service_level.value_or(nic.infiniband && configured && traffic_class <= 15
                                            ? static_cast<std::uint8_t>(traffic_class)
                                            : std::uint8_t{0});
    std::vector<Context> devices;
    for (const std::string& name : nic.verbs_devices) {
        devices.push_back(Context::open(name));
    }
    return std::make_shared<SharedEndpoint>(devices, nic.resolver, options);
}

} // namespace nccl_net
