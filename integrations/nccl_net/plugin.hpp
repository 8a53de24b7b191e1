// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "nccl_net_abi.hpp"
#include "nic.hpp"

/// The functions of the plugin, independent of the version of NCCL's function table. They are
/// thread safe, except that two threads must not use the same listener or handle at the same time.
///
/// A context is an NCCL communicator. NCCL passes contexts since version 11 of the function table.
/// With older versions, a null pointer stands for all NCCL communicators of the process.
namespace nccl_net {

/// Finds the usable devices, unless an earlier call has found some.
/// @param traffic_class  that NCCL requests; abi::undefined_traffic_class: none
/// @param context  set to the context of a new NCCL communicator; nullptr for versions without
///                 contexts. With these versions, NCCL calls init() only once.
/// @return system_error if no device is usable; internal_error if the environment disables the
///         plugin, or selects no network interface
abi::Result init(abi::Logger logger, int traffic_class, void** context) noexcept;
/// Ends an NCCL communicator. Closes its listeners and connection attempts that NCCL has forgotten,
/// because the communicator was aborted before both ends were connected.
abi::Result finalize(void* context) noexcept;

/// Sets @p count to the number of devices: those that init() has found, and the merged devices that
/// NCCL has requested since the plugin was last unused. Merged devices from before that time keep
/// their indices, because a later NCCL communicator may use them without creating them again
/// (NCCL_NET_PLUGIN_REF_COUNT=1).
abi::Result devices(int* count) noexcept;
/// Returns the device with the index @p device. Logs an error and returns nullptr if the index is
/// out of range. The pointer is valid until the library is unloaded.
[[nodiscard]] Nic* find_nic(int device);
/// Merges the devices with the indices @p members, unless they are merged already.
/// @param device  set to the index of the merged device
abi::Result merge(std::span<const int> members, int& device);

abi::Result listen(void* context, int device, void* handle, void** listener) noexcept;
/// Makes progress on a connection attempt without waiting. Sets @p comm to nullptr until both ends
/// are connected.
/// @param config  the configuration of this connection; nullptr: the traffic class of the context
/// @param handle  the handle of the peer. The first call stores the ID of the connection attempt in
///                it
abi::Result connect(void* context, int device, const abi::Config* config, void* handle,
                    void** comm) noexcept;
abi::Result accept(void* listener, void** comm, abi::DeviceHandle** offload) noexcept;
abi::Result close_listen(void* listener) noexcept;

} // namespace nccl_net
