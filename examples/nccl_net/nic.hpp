// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rdmabuf/transport.hpp>

namespace nccl_net {

/// The maximum number of messages in one grouped receive.
inline constexpr std::size_t max_receives = 8;

/// The properties of a verbs device with an active port, as the plugin reports them to NCCL. The
/// device is open only while a listener, a connection attempt or a communicator uses it.
struct Nic {
    std::string name;
    /// The directory of the PCI device in /sys; empty for a software device.
    std::string pci_path;
    /// The GUID, which all ports of one card share.
    std::uint64_t guid;
    /// The number of this port, which is unique on the card.
    int port;
    /// The speed in Mbit/s; 0 if the device reports no known rate.
    int speed;
    /// The kinds of memory that can be registered: a set of the bits abi::pointer_*.
    int pointers;
    /// The reason why pointers to GPU memory cannot be registered; empty if they can.
    std::string no_pointers_to_gpus;
    int max_comms;
    std::size_t max_message;

    // open_nic() passes the two members below to the endpoint that it creates.
    rdmabuf::Resolver resolver;
    rdmabuf::transport::EndpointOptions options;
};

/// Returns the usable devices of this machine, and logs why the other devices are not usable. If
/// RDMABUF_NCCL_DEVICES is set (names separated by commas), only these devices are considered.
/// @throws rdmabuf::Error for the same reasons as DeviceList
[[nodiscard]] std::vector<Nic> find_nics();

/// Opens the device and creates the endpoint through which the plugin uses it.
[[nodiscard]] rdmabuf::Result<rdmabuf::transport::Endpoint> open_nic(const Nic& nic) noexcept;

} // namespace nccl_net
