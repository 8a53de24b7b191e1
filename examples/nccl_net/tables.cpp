// SPDX-License-Identifier: BSD-3-Clause
//
// The two function tables that NCCL looks up by name, and the functions in the tables.
#include <algorithm>
#include <array>
#include <cstring>

#include "communicator.hpp"
#include "log.hpp"
#include "nccl_net_abi.hpp"
#include "plugin.hpp"

namespace nccl_net {
namespace {

using abi::Result;

constexpr const char* plugin_name = "rdmabuf";

Communicator& communicator(void* comm) {
    return *static_cast<Communicator*>(comm);
}

Result init_v8(abi::Logger logger) {
    return guarded("init", [&] { return Plugin::instance().start(logger); });
}

Result init_v12(void** context, std::uint64_t /*id*/, abi::ConfigV12* config, abi::Logger logger,
                void* /*profiler*/) {
    return guarded("init", [&] {
        const Result result = Plugin::instance().start(logger);
        if (config->traffic_class != abi::undefined_traffic_class) {
            log::info("init", "traffic class " + std::to_string(config->traffic_class) +
                                  " is ignored: this plugin does not support traffic classes");
        }
        // The plugin has no state for each NCCL communicator, so all contexts are the same.
        *context = &Plugin::instance();
        return result;
    });
}

Result finalize(void* /*context*/) {
    Plugin::instance().stop();
    return Result::success;
}

Result devices(int* count) {
    *count = Plugin::instance().device_count();
    return Result::success;
}

template <class Properties>
Result get_properties(int device, Properties* properties) {
    return guarded("getProperties", [&] {
        Nic* const nic = Plugin::instance().nic(device);
        if (nic == nullptr) {
            return Result::internal_error;
        }
        *properties = {};
        properties->name = nic->name.data();
        properties->pci_path = nic->pci_path.empty() ? nullptr : nic->pci_path.data();
        properties->guid = nic->guid;
        properties->pointers = nic->pointers;
        // With the value 0 NCCL does not register whole buffers in advance. Registration in advance
        // would save no time, because the plugin registers a dma-buf again each time NCCL requests
        // it.
        properties->global_memory = 0;
        properties->speed = nic->speed;
        properties->port = nic->port;
        properties->max_comms = nic->max_comms;
        properties->max_receives = static_cast<int>(max_receives);
        properties->device_type = abi::device_type_host;
        properties->device_version = abi::device_version_none;
        if constexpr (requires { properties->merged; }) {
            properties->merged.count = 1;
            properties->merged.devices[0] = device;
            properties->max_message = properties->max_collective = nic->max_message;
            properties->max_multi_request = 1;
            properties->rail = properties->plane = abi::undefined_id;
        }
        return Result::success;
    });
}

Result listen_v8(int device, void* handle, void** listener) {
    return guarded("listen", [&] { return Plugin::instance().listen(device, handle, *listener); });
}
Result listen_v12(void* /*context*/, int device, void* handle, void** listener) {
    return listen_v8(device, handle, listener);
}

Result connect_v8(int device, void* handle, void** comm, abi::DeviceHandle** /*offload*/) {
    return guarded("connect", [&] { return Plugin::instance().connect(device, handle, *comm); });
}
Result connect_v12(void* /*context*/, int device, void* handle, void** comm,
                   abi::DeviceHandle** offload) {
    return connect_v8(device, handle, comm, offload);
}

Result accept(void* listener, void** comm, abi::DeviceHandle** /*offload*/) {
    return guarded("accept", [&] {
        return Plugin::instance().accept(*static_cast<Listener*>(listener), *comm);
    });
}

Result regmr(void* comm, void* data, std::size_t size, int kind, void** memory) {
    return guarded("regMr", [&] {
        return nccl_net::register_memory(communicator(comm), data, size, kind, *memory);
    });
}
Result regmr_dmabuf(void* comm, void* data, std::size_t size, int /*kind*/, std::uint64_t offset,
                    int fd, void** memory) {
    return guarded("regMrDmaBuf", [&] {
        return nccl_net::register_dmabuf(communicator(comm), data, size, offset, fd, *memory);
    });
}
Result deregister_memory(void* /*comm*/, void* memory) {
    delete static_cast<Memory*>(memory);
    return Result::success;
}

Result isend_v12(void* comm, void* data, std::size_t size, int tag, void* memory,
                 void* /*profiled*/, void** request) {
    *request = nullptr;
    Request* begun = nullptr;
    const Result result =
        communicator(comm).send(*static_cast<const Memory*>(memory), data, size, tag, begun);
    *request = begun;
    return result;
}
Result isend_v8(void* comm, void* data, int size, int tag, void* memory, void** request) {
    return isend_v12(comm, data, static_cast<std::size_t>(size), tag, memory, nullptr, request);
}

template <class Size>
Result irecv(void* comm, int count, void** data, Size* sizes, int* tags, void** memories,
             void** request) {
    // In version 12, NCCL can pass a flag in *request if NCCL detects the received data itself and
    // needs no completion. The plugin ignores this flag and reports every completion.
    *request = nullptr;
    if (count < 1 || static_cast<std::size_t>(count) > max_receives) {
        return Result::internal_error;
    }
    Request* begun = nullptr;
    const Result result = communicator(comm).receive(static_cast<std::size_t>(count), data, sizes,
                                                     tags, memories, begun);
    *request = begun;
    return result;
}
Result irecv_v12(void* comm, int count, void** data, std::size_t* sizes, int* tags, void** memories,
                 void** /*profiled*/, void** request) {
    return irecv(comm, count, data, sizes, tags, memories, request);
}

Result iflush(void* comm, int count, void** data, int* sizes, void** memories, void** request) {
    *request = nullptr;
    if (count < 0 || static_cast<std::size_t>(count) > max_receives) {
        return Result::internal_error;
    }
    Request* begun = nullptr;
    const Result result =
        communicator(comm).flush(static_cast<std::size_t>(count), data, sizes, memories, begun);
    *request = begun;
    return result;
}

Result test(void* request, int* done, int* sizes) {
    *done = 0;
    auto& asked = *static_cast<Request*>(request);
    bool finished = false;
    const Result result = asked.owner->test(asked, finished, sizes);
    *done = finished ? 1 : 0;
    return result;
}

Result close_communicator(void* comm) {
    Plugin::instance().close(static_cast<Communicator*>(comm));
    return Result::success;
}
Result close_listen(void* listener) {
    Plugin::instance().close(static_cast<Listener*>(listener));
    return Result::success;
}

[[gnu::destructor]] void unload() {
    Plugin::unload();
}

} // namespace
} // namespace nccl_net

// NCCL looks up these two names. A null function in a table is an optional feature that this plugin
// does not have: network operations in GPU kernels, and merged devices.
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
    .connect = connect_v8,
    .accept = accept,
    .register_memory = regmr,
    .register_dmabuf = regmr_dmabuf,
    .deregister_memory = deregister_memory,
    .isend = isend_v8,
    .irecv = irecv<int>,
    .iflush = iflush,
    .test = test,
    .close_send = close_communicator,
    .close_receive = close_communicator,
    .close_listen = close_listen,
    .get_device_memory = nullptr,
    .receive_consumed = nullptr,
};

// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("default")]] extern const abi::NetV12 ncclNetPlugin_v12;
const abi::NetV12 ncclNetPlugin_v12 = {
    .name = plugin_name,
    .init = init_v12,
    .devices = devices,
    .get_properties = get_properties<abi::PropertiesV12>,
    .listen = listen_v12,
    .connect = connect_v12,
    .accept = accept,
    .register_memory = regmr,
    .register_dmabuf = regmr_dmabuf,
    .deregister_memory = deregister_memory,
    .isend = isend_v12,
    .irecv = irecv_v12,
    .iflush = iflush,
    .test = test,
    .close_send = close_communicator,
    .close_receive = close_communicator,
    .close_listen = close_listen,
    .get_device_memory = nullptr,
    .receive_consumed = nullptr,
    .make_virtual_device = nullptr,
    .finalize = finalize,
    .set_attributes = nullptr,
};

} // extern "C"
