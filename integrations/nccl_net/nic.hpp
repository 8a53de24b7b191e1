// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/topology.hpp>
#include <rdmabuf/transport.hpp>

#include "nccl_net_abi.hpp"
#include "settings.hpp"

namespace nccl_net {

/// The maximum number of messages in one grouped receive.
inline constexpr std::size_t max_receives = 8;

/// The maximum number of requests of a connection. NCCL has up to abi::max_requests grouped
/// receives in flight, and a flush follows each.
inline constexpr std::size_t max_operations = 2 * abi::max_requests;

/// The maximum length of a message in bytes. test() reports the size of a message as an int, so a
/// message must be shorter than 2 GiB.
inline constexpr std::size_t max_message = std::size_t{1} << 30U;

/// A device as the plugin reports it to NCCL: one active port of a verbs device, or several ports
/// that NCCL has merged. The verbs devices are open only while a listener, a connection attempt, a
/// communicator or registered memory uses them.
struct Nic {
    /// The name of the verbs device, with "_dma" if its data-direct function is used; the names of
    /// merged devices are joined by "+".
    std::string name;
    /// The directory in /sys of the data-direct function if it is used, otherwise card_path();
    /// empty for a device that is not a PCI function.
    std::string pci_path;
    /// Without the pointers to `name` and `pci_path`, which a move of this object would change.
    /// `merged` has the NCCL device indices of the merged devices, or only the index of this
    /// device. The GUID is that of the card. The port number is the sum that NCCL uses: the
    /// number of the port on the verbs device, and the number of earlier devices with the same
    /// GUID. It can occur twice if the verbs devices of a card have several ports. The rail and the
    /// plane are those in NCCL_IB_HCA; abi::undefined_id if there is none, or if those of merged
    /// devices differ.
    abi::PropertiesV12 properties{};
    /// The names of the verbs devices, in the order of `properties.merged`.
    std::vector<std::string> verbs_devices;
    std::optional<rdmabuf::PciAddress> pci_address;
    /// True if the port is an InfiniBand port; false for RoCE.
    bool infiniband;

    /// Finds and exports GPU memory.
    rdmabuf::Resolver resolver;
    /// The access of registered memory.
    rdmabuf::Access access;
    rdmabuf::transport::EndpointOptions options;
};

/// Returns the directory in /sys of @p function, with the PCI function 0, so that the ports of a
/// card have the same path. The PCI device number is replaced by 0, too, because virtual functions
/// have numbers of their own.
/// @param merge_functions  false: keeps the PCI device number (NCCL_IB_MERGE_VFS=0)
[[nodiscard]] std::string card_path(const rdmabuf::PciFunction& function, bool merge_functions);

/// Sorts devices as NCCL does, so that devices with the same index are on the same rail on all
/// nodes. Devices without an address are last.
void sort_by_pci_address(std::deque<Nic>& nics);

/// Returns the usable devices of this machine, and logs why the other devices are not usable.
/// @throws rdmabuf::Error for the same reasons as DeviceList
[[nodiscard]] std::deque<Nic> find_nics(const Settings& settings);

/// Merges several devices into one device, which stripes long messages over all of them.
/// @param all      all devices
/// @param members  the indices of the devices to merge; 1 to transport::max_rails indices
/// @return the merged device; EINVAL, with the reason, if the devices cannot be merged
[[nodiscard]] rdmabuf::Result<Nic> merge_nics(const std::deque<Nic>& all,
                                              std::span<const int> members);

/// Memory that NCCL has registered.
struct RegisteredMemory;
/// Requests in flight have copies of this pointer: when an NCCL communicator is aborted, NCCL
/// deregisters memory before it closes the connections that use it. A request releases its copy
/// when it completes, because freed GPU memory that is still registered cannot be allocated again.
using MemoryHandle = std::shared_ptr<const RegisteredMemory>;

/// Identifies memory that NCCL has registered, as long as it is registered. The descriptor of a
/// dma-buf is no part of it, because NCCL exports the memory again for each registration.
struct MemoryKey {
    const void* address;
    std::size_t size;
    /// The offset in the dma-buf; std::nullopt for memory that is registered by its address only.
    std::optional<std::uint64_t> offset = std::nullopt;

    friend auto operator<=>(const MemoryKey&, const MemoryKey&) = default;
};

/// An endpoint of one device, and its lock. The calls of the endpoint, and of its channels,
/// listeners and connectors, need the lock, except calls that only return a value which no other
/// thread changes.
///
/// NCCL calls the plugin from several threads. Each NCCL communicator has a service thread, which
/// connects and registers memory, and a progress thread, which sends, receives and tests. Both
/// threads may use the same connection at the same time. The progress thread serves all connections
/// of its NCCL communicator. Therefore:
///   - There is one endpoint for each NCCL communicator, device and traffic class. The progress
///     threads of different NCCL communicators then do not wait for each other, and one call of
///     test() completes the requests of all connections. An endpoint for each connection would cost
///     a protection domain, a completion queue, a shared receive queue and about 0.4 MB of buffers
///     for each connection, and each buffer would be registered once for each connection.
///   - A lock is needed, because the service thread connects while the progress thread is busy. In
///     steady state the progress thread alone takes the lock. Memory is registered without it, and
///     queue pairs are created and connected without it, except one: the first registration of GPU
///     memory creates the queue pair for flushes with the lock.
/// NCCL describes its communicators to the plugin from version 11 on. In older versions all NCCL
/// communicators of the process share the endpoint of a device and traffic class.
struct SharedEndpoint {
    /// @throws rdmabuf::Error with the errors of Endpoint::open()
    SharedEndpoint(std::span<const rdmabuf::Context> devices, const rdmabuf::Resolver& resolver,
                   rdmabuf::transport::EndpointOptions options)
        : endpoint([&] {
              options.mutex = &mutex;
              return rdmabuf::transport::Endpoint::open(devices, resolver, options).value();
          }()) {}

    std::mutex mutex;
    rdmabuf::transport::Endpoint endpoint;
    /// The registrations that NCCL has requested and not ended, which later requests for the same
    /// memory share, as in NCCL's own InfiniBand transport: NCCL registers some buffers once for
    /// each connection. Needs the lock. Expired elements are removed by the next registration.
    std::map<MemoryKey, std::weak_ptr<const MemoryHandle>> registrations;
    /// Set to false when the close of a connection has timed out after EndpointOptions::linger. The
    /// other connections are then closed without waiting, because NCCL closes its connections one
    /// after another: if hundreds of them are connected to a peer that cannot be reached, each
    /// would wait for the linger time.
    bool lingers = true;
};

/// Opens the verbs devices and creates an endpoint.
/// @param traffic_class  the traffic class that NCCL requests; abi::undefined_traffic_class: none
/// @throws rdmabuf::Error with the errors of Context::open() and Endpoint::open()
[[nodiscard]] std::shared_ptr<SharedEndpoint> open_nic(const Nic& nic, const Settings& settings,
                                                       int traffic_class);

} // namespace nccl_net
