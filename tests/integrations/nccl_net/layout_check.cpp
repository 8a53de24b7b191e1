// SPDX-License-Identifier: BSD-3-Clause
//
// Compares the layouts in nccl_net_abi.hpp with NCCL's headers for network plugins. This file is
// compiled only if these headers are found.
#include <nccl/net.h>

#include <cstddef>
#include <type_traits>

#include <nccl_net_abi.hpp>

namespace abi = nccl_net::abi;

namespace {

template <class Ours, class Theirs>
consteval bool same_properties() {
    return sizeof(Ours) == sizeof(Theirs) &&
           offsetof(Ours, device.name) == offsetof(Theirs, name) &&
           offsetof(Ours, device.pci_path) == offsetof(Theirs, pciPath) &&
           offsetof(Ours, device.guid) == offsetof(Theirs, guid) &&
           offsetof(Ours, device.pointers) == offsetof(Theirs, ptrSupport) &&
           offsetof(Ours, device.global_memory) == offsetof(Theirs, regIsGlobal) &&
           offsetof(Ours, link.speed) == offsetof(Theirs, speed) &&
           offsetof(Ours, link.port) == offsetof(Theirs, port) &&
           offsetof(Ours, link.latency) == offsetof(Theirs, latency) &&
           offsetof(Ours, link.max_comms) == offsetof(Theirs, maxComms) &&
           offsetof(Ours, link.max_receives) == offsetof(Theirs, maxRecvs) &&
           offsetof(Ours, link.device_type) == offsetof(Theirs, netDeviceType) &&
           offsetof(Ours, link.device_version) == offsetof(Theirs, netDeviceVersion);
}
template <class Ours, class Theirs>
consteval bool same_sizes() {
    return same_properties<Ours, Theirs>() &&
           offsetof(Ours, force_flush) == offsetof(Theirs, forceFlush) &&
           offsetof(Ours, merged) == offsetof(Theirs, vProps) &&
           offsetof(Ours, max_message) == offsetof(Theirs, maxP2pBytes) &&
           offsetof(Ours, max_collective) == offsetof(Theirs, maxCollBytes);
}
static_assert(same_properties<abi::PropertiesV8, ncclNetProperties_v8_t>());
static_assert(same_sizes<abi::PropertiesV10, ncclNetProperties_v10_t>());
static_assert(same_sizes<abi::PropertiesV11, ncclNetProperties_v11_t>());
static_assert(same_sizes<abi::PropertiesV12, ncclNetProperties_v12_t>());
static_assert(offsetof(abi::PropertiesV11, later.max_multi_request) ==
              offsetof(ncclNetProperties_v11_t, maxMultiRequestSize));
static_assert(offsetof(abi::PropertiesV12, later.max_multi_request) ==
              offsetof(ncclNetProperties_v12_t, maxMultiRequestSize));
static_assert(offsetof(abi::PropertiesV12, later.rail) ==
              offsetof(ncclNetProperties_v12_t, railId));
static_assert(offsetof(abi::PropertiesV12, later.plane) ==
              offsetof(ncclNetProperties_v12_t, planeId));
static_assert(sizeof(abi::VirtualDeviceV10) == sizeof(ncclNetVDeviceProps_v10_t));
static_assert(sizeof(abi::VirtualDeviceV12) == sizeof(ncclNetVDeviceProps_v12_t));
static_assert(sizeof(abi::Config) == sizeof(ncclNetCommConfig_v10_t));
static_assert(sizeof(abi::Config) == sizeof(ncclNetCommConfig_v12_t));

template <class Ours, class Theirs>
consteval bool same_table() {
    return sizeof(Ours) == sizeof(Theirs) && offsetof(Ours, name) == offsetof(Theirs, name) &&
           offsetof(Ours, init) == offsetof(Theirs, init) &&
           offsetof(Ours, devices) == offsetof(Theirs, devices) &&
           offsetof(Ours, get_properties) == offsetof(Theirs, getProperties) &&
           offsetof(Ours, listen) == offsetof(Theirs, listen) &&
           offsetof(Ours, connect) == offsetof(Theirs, connect) &&
           offsetof(Ours, functions.accept) == offsetof(Theirs, accept) &&
           offsetof(Ours, functions.register_memory) == offsetof(Theirs, regMr) &&
           offsetof(Ours, functions.register_dmabuf) == offsetof(Theirs, regMrDmaBuf) &&
           offsetof(Ours, functions.deregister_memory) == offsetof(Theirs, deregMr) &&
           offsetof(Ours, functions.isend) == offsetof(Theirs, isend) &&
           offsetof(Ours, functions.irecv) == offsetof(Theirs, irecv) &&
           offsetof(Ours, functions.iflush) == offsetof(Theirs, iflush) &&
           offsetof(Ours, functions.test) == offsetof(Theirs, test) &&
           offsetof(Ours, functions.close_send) == offsetof(Theirs, closeSend) &&
           offsetof(Ours, functions.close_receive) == offsetof(Theirs, closeRecv) &&
           offsetof(Ours, functions.close_listen) == offsetof(Theirs, closeListen) &&
           offsetof(Ours, functions.get_device_memory) == offsetof(Theirs, getDeviceMr) &&
           offsetof(Ours, functions.receive_consumed) == offsetof(Theirs, irecvConsumed);
}
static_assert(same_table<abi::NetV8, ncclNet_v8_t>());
static_assert(same_table<abi::NetV10, ncclNet_v10_t>());
static_assert(same_table<abi::NetV11, ncclNet_v11_t>());
static_assert(same_table<abi::NetV12, ncclNet_v12_t>());
static_assert(offsetof(abi::NetV10, later.make_virtual_device) ==
              offsetof(ncclNet_v10_t, makeVDevice));
static_assert(offsetof(abi::NetV11, later.make_virtual_device) ==
              offsetof(ncclNet_v11_t, makeVDevice));
static_assert(offsetof(abi::NetV12, later.make_virtual_device) ==
              offsetof(ncclNet_v12_t, makeVDevice));
static_assert(offsetof(abi::NetV11, later.finalize) == offsetof(ncclNet_v11_t, finalize));
static_assert(offsetof(abi::NetV12, later.finalize) == offsetof(ncclNet_v12_t, finalize));
static_assert(offsetof(abi::NetV11, later.set_attributes) == offsetof(ncclNet_v11_t, setNetAttr));
static_assert(offsetof(abi::NetV12, later.set_attributes) == offsetof(ncclNet_v12_t, setNetAttr));

static_assert(abi::handle_size == NCCL_NET_HANDLE_MAXSIZE);
static_assert(abi::max_requests == NCCL_NET_MAX_REQUESTS);
static_assert(abi::pointer_host == NCCL_PTR_HOST && abi::pointer_cuda == NCCL_PTR_CUDA &&
              abi::pointer_dmabuf == NCCL_PTR_DMABUF);
static_assert(abi::optional_receive_completion == NCCL_NET_OPTIONAL_RECV_COMPLETION);
static_assert(abi::undefined_traffic_class == NCCL_NET_TRAFFIC_CLASS_UNDEF);
static_assert(abi::device_type_host == NCCL_NET_DEVICE_HOST);
static_assert(static_cast<int>(abi::Result::system_error) == ncclSystemError &&
              static_cast<int>(abi::Result::internal_error) == ncclInternalError &&
              static_cast<int>(abi::Result::invalid_usage) == ncclInvalidUsage &&
              static_cast<int>(abi::Result::remote_error) == ncclRemoteError);

} // namespace
