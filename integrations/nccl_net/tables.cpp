// SPDX-License-Identifier: BSD-3-Clause
//
// The function tables that NCCL looks up by name.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <rdmabuf/transport/options.hpp>

#include "communicator.hpp"
#include "log.hpp"
#include "nccl_net_abi.hpp"
#include "plugin.hpp"

namespace nccl_net {
namespace {

using abi::Result;

constexpr const char* plugin_name = "rdmabuf";

template <class Properties>
Result get_properties(int device, Properties* properties) {
    return guarded("getProperties", [&] {
        Nic* const nic = find_nic(device);
        if (nic == nullptr) {
            return Result::internal_error;
        }
        const abi::PropertiesV12& all = nic->properties;
        *properties = {};
        properties->device = all.device;
        properties->device.name = nic->name.data();
        properties->device.pci_path = nic->pci_path.empty() ? nullptr : nic->pci_path.data();
        properties->link = all.link;
        if constexpr (requires { properties->merged; }) {
            const auto count = static_cast<std::size_t>(all.merged.count);
            if (count > properties->merged.max) {
                // The device was merged through the table of a newer version, which permits more
                // members than this version.
                log::warn(
                    "getProperties",
                    nic->name + " has more devices than this version of NCCL's interface permits");
                return Result::invalid_usage;
            }
            properties->merged.count = all.merged.count;
            std::copy_n(all.merged.devices.begin(), count, properties->merged.devices.begin());
            properties->force_flush = all.force_flush;
            properties->max_message = all.max_message;
            properties->max_collective = all.max_collective;
        }
        if constexpr (requires { properties->later.rail; }) {
            properties->later = all.later;
        }
        return Result::success;
    });
}

template <class Virtual>
Result make_virtual_device(int* device, Virtual* wanted) {
    return guarded("makeVDevice", [&] {
        static_assert(Virtual::max <= rdmabuf::transport::max_rails);
        if (wanted->count < 1 || static_cast<std::size_t>(wanted->count) > Virtual::max) {
            log::info("makeVDevice", "devices are not merged: a merged device has 1 to " +
                                         std::to_string(Virtual::max) + " devices");
            return Result::invalid_usage;
        }
        return merge(
            std::span<const int>(wanted->devices).first(static_cast<std::size_t>(wanted->count)),
            *device);
    });
}

template <class Size, class... Profiled>
Result send(void* comm, void* data, Size size, int tag, void* memory, Profiled... /*profiled*/,
            void** request) {
    return isend(comm, data, static_cast<std::size_t>(size), tag, memory, request);
}

/// NCCL can call irecv() with abi::optional_receive_completion in *request. This value means that
/// NCCL's kernels detect the received data themselves. The plugin ignores it and completes the
/// receive only after the data has arrived, because the receive needs a request until then.
template <class Size, class... Profiled>
Result receive(void* comm, int count, void** data, Size* sizes, int* tags, void** memories,
               Profiled*... /*profiled*/, void** request) {
    *request = nullptr;
    if (count < 1 || static_cast<std::size_t>(count) > max_receives) {
        return guarded("irecv", [] {
            log::warn("irecv",
                      "a grouped receive has 1 to " + std::to_string(max_receives) + " messages");
            return Result::internal_error;
        });
    }
    std::array<std::size_t, max_receives> copies{};
    std::copy_n(sizes, count, copies.begin());
    return irecv(comm, static_cast<std::size_t>(count), data, copies.data(), tags, memories,
                 request);
}

// A null pointer means that the plugin does not support an optional function. The null pointers
// below stand for functions that serve network operations in GPU kernels, and for setNetAttr(),
// which NCCL would call with hints (the expected number of peers and flows).

template <class Size, class... Profiled>
constexpr abi::Functions<Size, Profiled...> functions = {.accept = accept,
                                                         .register_memory = register_memory,
                                                         .register_dmabuf = register_dmabuf,
                                                         .deregister_memory = deregister_memory,
                                                         .isend = send<Size, Profiled...>,
                                                         .irecv = receive<Size, Profiled...>,
                                                         .iflush = iflush,
                                                         .test = test,
                                                         .close_send = close_communicator,
                                                         .close_receive = close_communicator,
                                                         .close_listen = close_listen,
                                                         .get_device_memory = nullptr,
                                                         .receive_consumed = nullptr};

/// For the versions before 11, which have no contexts.
template <class... Profiler>
Result init_v8(abi::Logger logger, Profiler... /*profiler*/) {
    return init(logger, abi::undefined_traffic_class, nullptr);
}
Result listen_v8(int device, void* handle, void** listener) {
    return listen(nullptr, device, handle, listener);
}

/// NCCL's function table of version 11 or 12.
template <class Properties, class Virtual>
constexpr abi::NetWithContext<Properties, Virtual> table_with_context = {
    .name = plugin_name,
    .init =
        [](void** context, std::uint64_t /*id*/, abi::Config* config, abi::Logger logger,
           abi::ProfilerCallback /*profiler*/) {
            return init(logger,
                        config != nullptr ? config->traffic_class : abi::undefined_traffic_class,
                        context);
        },
    .devices = devices,
    .get_properties = get_properties<Properties>,
    .listen = listen,
    .connect =
        [](void* context, int device, void* handle, void** comm, abi::DeviceHandle** /*offload*/) {
            return connect(context, device, nullptr, handle, comm);
        },
    .functions = functions<std::size_t, void*>,
    .later = {.make_virtual_device = make_virtual_device<Virtual>,
              .finalize = finalize,
              .set_attributes = nullptr}};

} // namespace
} // namespace nccl_net

extern "C" {
using namespace nccl_net;

// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("default")]] extern const abi::NetV8 ncclNetPlugin_v8;
const abi::NetV8 ncclNetPlugin_v8 = {
    .name = plugin_name,
    .init = init_v8,
    .devices = devices,
    .get_properties = get_properties<abi::PropertiesV8>,
    .listen = listen_v8,
    .connect =
        [](int device, void* handle, void** comm, abi::DeviceHandle** /*offload*/) {
            return connect(nullptr, device, nullptr, handle, comm);
        },
    .functions = functions<int>,
    .later = {}};

// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("default")]] extern const abi::NetV10 ncclNetPlugin_v10;
const abi::NetV10 ncclNetPlugin_v10 = {
    .name = plugin_name,
    .init = init_v8,
    .devices = devices,
    .get_properties = get_properties<abi::PropertiesV10>,
    .listen = listen_v8,
    .connect =
        [](int device, abi::Config* config, void* handle, void** comm,
           abi::DeviceHandle** /*offload*/) {
            return connect(nullptr, device, config, handle, comm);
        },
    .functions = functions<std::size_t, void*>,
    .later = {.make_virtual_device = make_virtual_device<abi::VirtualDeviceV10>}};

// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("default")]] extern const abi::NetV11 ncclNetPlugin_v11;
const abi::NetV11 ncclNetPlugin_v11 = table_with_context<abi::PropertiesV11, abi::VirtualDeviceV10>;

// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("default")]] extern const abi::NetV12 ncclNetPlugin_v12;
const abi::NetV12 ncclNetPlugin_v12 = table_with_context<abi::PropertiesV12, abi::VirtualDeviceV12>;

} // extern "C"
