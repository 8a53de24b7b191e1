// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rdmabuf/transport.hpp>

namespace nccl_net {

/// Messages that one grouped receive takes at most.
inline constexpr std::size_t max_receives = 8;

/// A verbs device with an active port, as NCCL is told of it. It is open only while something of it
/// is in use.
struct Nic {
    std::string name;
    /// Of its PCI device in /sys; empty for a software device, which has none.
    std::string pci_path;
    /// What the ports of one card have in common, and which of them this is.
    std::uint64_t guid;
    int port;
    /// Mbit/s; 0 where the device tells none that is known.
    int speed;
    /// What can be registered: abi::pointer_host and its like.
    int pointers;
    /// Why pointers to GPU memory are not among that; empty when they are.
    std::string no_pointers_to_gpus;
    int max_comms;
    std::size_t max_message;

    // How to open it.
    rdmabuf::Resolver resolver;
    rdmabuf::transport::EndpointOptions options;
};

/// All devices of this machine that can be used; of those that cannot, NCCL's log has the reason.
/// RDMABUF_NCCL_DEVICES, names separated by commas, leaves others out.
/// @throws rdmabuf::Error as DeviceList
[[nodiscard]] std::vector<Nic> find_nics();

/// What the plugin does with a device goes through one of these.
[[nodiscard]] rdmabuf::Result<rdmabuf::transport::Endpoint> open_nic(const Nic& nic) noexcept;

} // namespace nccl_net
