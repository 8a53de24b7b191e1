// SPDX-License-Identifier: BSD-3-Clause
#include "nic.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/resolver.hpp>

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

/// The maximum number of ports that are used. NCCL's own InfiniBand network has the same limit
/// (MAX_IB_DEVS).
constexpr std::size_t max_nics = 32;

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

/// Returns the directory in /sys of a PCI function.
std::string path_of(const rdmabuf::PciFunction& function) {
    std::string path = "/sys/devices/";
    for (const std::string& ancestor : function.ancestors) {
        path += ancestor + "/";
    }
    return path + to_string(function.address);
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

/// Finds the usable devices, and logs why the others are not usable.
struct Finder {
    const Settings& settings;
    Resolver resolver = cuda_resolver();
    std::shared_ptr<rdmabuf::Topology> topology =
        std::make_shared<rdmabuf::Topology>(rdmabuf::Topology::read());
    std::deque<Nic> nics = {};

    /// Adds the usable ports of a device.
    void add_device(const rdmabuf::Device& device) {
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
                add_port(context, port, entry != nullptr ? *entry : NameList::Entry());
            }
        }
        if (!active) {
            unusable("none of its ports is active");
        }
    }

  private:
    /// Adds a port, or logs why it cannot be used.
    /// @param entry  the entry of NCCL_IB_HCA that selects the port
    void add_port(const Context& context, std::uint8_t port, const NameList::Entry& entry) {
        const std::string name = context.device_name();
        const ibv_device_attr attributes = context.attributes().native.orig_attr;
        const ibv_port_attr state = context.port(port);
        const auto options = options_for(context, port);
        if (!has_indices(name, state, options)) {
            return;
        }
        if (auto endpoint = rdmabuf::transport::Endpoint::open(context, resolver, options);
            !endpoint) {
            log::info("init", "not using " + name + ": " + endpoint.message());
            return;
        }
        Nic nic{.name = name,
                .pci_path = {},
                .verbs_devices = {name},
                .pci_address = {},
                .infiniband = state.link_layer == IBV_LINK_LAYER_INFINIBAND,
                .resolver = resolver,
                .access = rdmabuf::transport::Endpoint::default_access,
                .options = options};
        if (settings.relaxed_ordering) {
            nic.access |= rdmabuf::Access::relaxed_ordering;
        }
        abi::PropertiesV12& properties = nic.properties;
        properties.device.guid = be64toh(attributes.sys_image_guid != 0 ? attributes.sys_image_guid
                                                                        : attributes.node_guid);
        // A registration is valid for all connections of the NCCL communicator on this device, also
        // after the connection that registered it was closed.
        properties.device.global_memory = 1;
        properties.link = {.speed = static_cast<int>(rdmabuf::link_speed(state)),
                           .port = port,
                           .latency = 0,
                           .max_comms = max_connections(attributes, options),
                           .max_receives = static_cast<int>(max_receives),
                           .device_type = abi::device_type_host,
                           .device_version = abi::device_version_none};
        properties.merged.count = 1;
        properties.max_message = properties.max_collective = max_message;
        properties.later = {.max_multi_request = 1,
                            .rail = static_cast<std::int16_t>(entry.rail),
                            .plane = static_cast<std::int16_t>(entry.plane)};
        const rdmabuf::Nic* const known = topology->find_nic(name);
        if (known != nullptr && known->pci) {
            nic.pci_address = known->pci->address;
            nic.pci_path = card_path(*known->pci, settings.merge_functions);
        }
        if (known != nullptr && known->data_direct) {
            nic.name += "_dma";
            nic.pci_path = path_of(*known->data_direct);
            // With data direct, data and completions reach memory on different PCIe paths, so the
            // data may become visible after its completion.
            properties.force_flush = 1;
        }
        set_pointers(nic, context);
        nics.push_back(std::move(nic));
    }

    [[nodiscard]] rdmabuf::transport::EndpointOptions options_for(const Context& context,
                                                                  std::uint8_t port) const {
        rdmabuf::transport::EndpointOptions options;
        options.port = port;
        options.depth = max_operations * max_receives;
        // NCCL's LL128 kernels poll for flags that are stored behind the data. They expect that the
        // data is written before the flags, as NICs do for an RDMA write. A copy by the CPU from a
        // bounce buffer does not guarantee this. With the limit 0, no data is sent to a bounce
        // buffer.
        options.eager_limit = 0;
        options.receive_buffers = receive_buffers;
        options.send_depth = send_depth;
        options.send_buffers = 64;
        options.queue_pairs_per_device = settings.queue_pairs;
        options.gid_index = settings.gid.index_of(context, port);
        options.pkey_index = settings.pkey_index;
        // NCCL polls connect() and accept() without a time limit, and does other work in between,
        // such as registering memory for hundreds of connections. The limit for the handshake can
        // be long, because the socket detects the end of the peer process or machine.
        options.handshake = std::chrono::hours(24);
        options.ack_timeout = settings.ack_timeout;
        options.retry_count = settings.retry_count;
        options.cache.topology = topology;
        return options;
    }

    /// Sets the kinds of memory that can be registered on @p nic. Logs whether GPUDirect RDMA is
    /// enabled, and the reasons.
    void set_pointers(Nic& nic, const Context& context) const {
        const Availability import = context.dmabuf_import();
        const Availability exports =
            nic.resolver.exporters().empty()
                ? Availability::no("this library was built without the cuda exporter")
                : nic.resolver.exporters().front()->availability();
        const bool peer_memory = peer_memory_module_loaded();
        // A registration uses the first path that supports the memory. The path "host" is first, so
        // that host memory that CUDA has pinned is registered without a dma-buf. GPU memory is
        // never registered by this path.
        nic.options.cache.registration.paths =
            peer_memory ? rdmabuf::PathOrder{RegistrationPath::host, RegistrationPath::dmabuf,
                                             RegistrationPath::peermem}
                        : rdmabuf::PathOrder{RegistrationPath::host, RegistrationPath::dmabuf};
        int& pointers = nic.properties.device.pointers;
        pointers = abi::pointer_host;
        // Without the exporter, GPU memory cannot be told from host memory, and received data would
        // not be flushed.
        if ((import && exports) || (peer_memory && !nic.resolver.exporters().empty())) {
            pointers |= abi::pointer_cuda;
        }
        // NCCL exports dma-bufs only if this library cannot export them, or if RDMABUF_NCCL_DMABUF
        // is set. By default, this library exports them, because it selects the mapping for each
        // NIC (PCIe or data direct).
        if (import && (!exports || settings.nccl_exports)) {
            pointers |= abi::pointer_dmabuf;
        }
        log::info("init",
                  std::string("GPU Direct RDMA ") +
                      (pointers == abi::pointer_host ? "disabled" : "enabled") + " on " + nic.name +
                      ": import of dma-bufs by " + nic.name + ": " + to_string(import) +
                      "; export of GPU memory as dma-bufs: " + to_string(exports) +
                      "; peer memory module (nvidia_peermem): " + (peer_memory ? "yes" : "no"));
    }
};

} // namespace

std::string card_path(const rdmabuf::PciFunction& function, bool merge_functions) {
    rdmabuf::PciFunction card = function;
    card.address.function = 0;
    if (merge_functions) {
        card.address.device = 0;
    }
    return path_of(card);
}

void sort_by_pci_address(std::deque<Nic>& nics) {
    std::ranges::stable_sort(
        nics, {}, [](const Nic& nic) { return std::pair(!nic.pci_address, nic.pci_address); });
}

std::deque<Nic> find_nics(const Settings& settings) {
    // NCCL's programs fork, for example the data loaders of PyTorch. Since rdma-core 51 this call
    // does nothing if the kernel reports that it copies pinned pages at fork(2) (Linux 5.13).
    // Older versions call madvise(MADV_DONTFORK) for each registration after this call.
    if (const int error = ::ibv_fork_init(); error != 0) {
        log::info("init", "ibv_fork_init: " + rdmabuf::describe_errno(error));
    }
    Finder finder{.settings = settings};
    for (const rdmabuf::Device& device : rdmabuf::DeviceList()) {
        try {
            finder.add_device(device);
        } catch (const rdmabuf::Error& error) {
            log::info("init", "not using " + device.name() + ": " + error.what());
        }
    }
    std::deque<Nic> nics = std::move(finder.nics);
    if (settings.pci_order) {
        sort_by_pci_address(nics);
    }
    for (; nics.size() > max_nics; nics.pop_back()) {
        log::info("init", "not using " + nics.back().name + " port " +
                              std::to_string(nics.back().options.port) + ": NCCL supports " +
                              std::to_string(max_nics) + " devices");
    }
    for (auto nic = nics.begin(); nic != nics.end(); ++nic) {
        // The ports of a card can be separate verbs devices, in which each port has the number 1.
        // Therefore add the number of earlier entries of `nics` with the same GUID, as NCCL does.
        nic->properties.link.port +=
            static_cast<int>(std::count_if(nics.begin(), nic, [&](const Nic& earlier) {
                return earlier.properties.device.guid == nic->properties.device.guid;
            }));
        const auto index = static_cast<int>(nic - nics.begin());
        nic->properties.merged.devices = {index};
        const int mbits = nic->properties.link.speed;
        const std::string speed =
            mbits > 0 ? std::to_string(mbits) + " Mbit/s" : "of unknown speed";
        log::info("init", "[" + std::to_string(index) + "] " + nic->name + " port " +
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
            all[static_cast<std::size_t>(member)].properties.merged.count != 1) {
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
        merged->verbs_devices.push_back(nic.verbs_devices.front());
        abi::PropertiesV12& all_of = merged->properties;
        const abi::PropertiesV12& one = nic.properties;
        all_of.device.pointers &= one.device.pointers;
        all_of.force_flush |= one.force_flush;
        all_of.link.speed += one.link.speed;
        all_of.link.max_comms = std::min(all_of.link.max_comms, one.link.max_comms);
        all_of.merged.devices.at(static_cast<std::size_t>(all_of.merged.count++)) = member;
        if (all_of.later.rail != one.later.rail) {
            all_of.later.rail = abi::undefined_id;
        }
        if (all_of.later.plane != one.later.plane) {
            all_of.later.plane = abi::undefined_id;
        }
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
