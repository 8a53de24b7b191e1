// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/resolver.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/topology.hpp>
#include <rdmabuf/transport.hpp>

#include "settings.hpp"
#include "shared_endpoint.hpp"

namespace nccl_net {

/// The maximum number of messages in one grouped receive.
inline constexpr std::size_t max_receives = 8;

/// The properties of a device as the plugin reports them to NCCL. Such a device is one verbs device
/// with an active port, or several verbs devices that NCCL has merged. The verbs devices are open
/// only while a listener, a connection attempt or a communicator uses them.
struct Nic {
    /// The name of the verbs device; the names of merged devices are joined by "+".
    std::string name;
    /// NCCL's numbers of the devices that are merged in this device; only its own number if the
    /// device is not merged.
    std::vector<int> members;
    /// The names of the verbs devices, in the order of `members`.
    std::vector<std::string> verbs_devices;
    /// The directory of the PCI device in /sys; empty for a software device.
    std::string pci_path;
    /// The GUID, which all ports of one card share.
    std::uint64_t guid;
    /// The port number for NCCL, which is unique among all ports of the card.
    int port;
    /// The speed in Mbit/s; 0 if the device reports no known rate.
    int speed;
    /// True if the port is an InfiniBand port; false for RoCE.
    bool infiniband;
    /// The kinds of memory that can be registered: a set of the bits abi::pointer_*.
    int pointers;
    /// The reason why pointers to GPU memory cannot be registered; empty if they can.
    std::string no_pointers_to_gpus;
    /// True if NCCL has to flush received data also on GPUs on which NCCL normally omits the flush.
    bool force_flush;
    int max_comms;
    /// The maximum length of a message in bytes.
    std::size_t max_message;
    /// The maximum length in bytes of a memory region that all verbs devices of this device
    /// support.
    std::uint64_t max_region;
    /// True if memory is registered with PCIe relaxed ordering.
    bool relaxed_ordering;

    // open_nic() uses the members below to create the endpoint.
    rdmabuf::Resolver resolver;
    std::shared_ptr<const rdmabuf::Topology> topology;
    rdmabuf::transport::EndpointOptions options;
};

/// Returns the usable devices of this machine, and logs why the other devices are not usable.
/// @throws rdmabuf::Error for the same reasons as DeviceList
[[nodiscard]] std::vector<Nic> find_nics(const Settings& settings);

/// Merges several devices into one device, which stripes long messages over all of them.
/// @param all      all devices
/// @param members  the numbers of the devices to merge
/// @return the merged device; std::nullopt, with @p reason set, if the devices cannot be merged
[[nodiscard]] std::optional<Nic> merge_nics(std::span<const Nic> all, std::span<const int> members,
                                            std::string& reason);

/// Opens the verbs devices and creates an endpoint.
/// @param traffic_class  the traffic class that NCCL requests; abi::undefined_traffic_class: none
[[nodiscard]] rdmabuf::Result<std::shared_ptr<SharedEndpoint>> open_nic(const Nic& nic,
                                                                        const Settings& settings,
                                                                        int traffic_class) noexcept;

} // namespace nccl_net
