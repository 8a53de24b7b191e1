// SPDX-License-Identifier: BSD-3-Clause
//
// The function tables that NCCL looks up by name, and the functions in the tables. The suffix of a
// function is the first version that uses it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "communicator.hpp"
#include "log.hpp"
#include "memory.hpp"
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
    return guarded("init", [&] {
        return Plugin::instance().start(logger, abi::undefined_traffic_class, nullptr);
    });
}
Result init_v10(abi::Logger logger, abi::ProfilerCallback /*profiler*/) {
    return init_v8(logger);
}
Result init_v11(void** context, std::uint64_t /*id*/, abi::Config* config, abi::Logger logger,
                abi::ProfilerCallback /*profiler*/) {
    return guarded("init", [&] {
        return Plugin::instance().start(
            logger, config != nullptr ? config->traffic_class : abi::undefined_traffic_class,
            context);
    });
}
Result finalize(void* context) {
    Plugin::instance().stop(context);
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
        // A registration is valid for all connections of the NCCL communicator on this device, also
        // after the connection that registered it was closed.
        properties->global_memory = 1;
        properties->speed = nic->speed;
        properties->port = nic->port;
        properties->max_comms = nic->max_comms;
        properties->max_receives = static_cast<int>(max_receives);
        properties->device_type = abi::device_type_host;
        properties->device_version = abi::device_version_none;
        if constexpr (requires { properties->merged; }) {
            properties->force_flush = nic->force_flush ? 1 : 0;
            if (nic->members.size() > properties->merged.devices.size()) {
                // The device was merged through the table of a newer version, which permits more
                // members than this version.
                return Result::invalid_usage;
            }
            properties->merged.count = static_cast<int>(nic->members.size());
            std::copy(nic->members.begin(), nic->members.end(), properties->merged.devices.begin());
            properties->max_message = properties->max_collective = max_message;
        }
        if constexpr (requires { properties->max_multi_request; }) {
            properties->max_multi_request = 1;
        }
        if constexpr (requires { properties->rail; }) {
            properties->rail = nic->rail;
            properties->plane = nic->plane;
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
        return Plugin::instance().merge(
            std::span<const int>(wanted->devices).first(static_cast<std::size_t>(wanted->count)),
            *device);
    });
}

Result listen_v11(void* context, int device, void* handle, void** listener) {
    return guarded("listen",
                   [&] { return Plugin::instance().listen(context, device, handle, *listener); });
}
Result listen_v8(int device, void* handle, void** listener) {
    return listen_v11(nullptr, device, handle, listener);
}

Result connect(void* context, int device, const abi::Config* config, void* handle, void** comm) {
    return guarded("connect", [&] {
        return Plugin::instance().connect(context, device, config, handle, *comm);
    });
}
Result connect_v8(int device, void* handle, void** comm, abi::DeviceHandle** /*offload*/) {
    return connect(nullptr, device, nullptr, handle, comm);
}
Result connect_v10(int device, abi::Config* config, void* handle, void** comm,
                   abi::DeviceHandle** /*offload*/) {
    return connect(nullptr, device, config, handle, comm);
}
Result connect_v11(void* context, int device, void* handle, void** comm,
                   abi::DeviceHandle** /*offload*/) {
    return connect(context, device, nullptr, handle, comm);
}
Result accept(void* listener, void** comm, abi::DeviceHandle** /*offload*/) {
    return guarded("accept", [&] {
        return Plugin::instance().accept(*static_cast<Listener*>(listener), *comm);
    });
}

/// Creates an mhandle for NCCL. @param call  registers the memory
template <class Register>
Result registered(const char* function, void* comm, void** memory, const Register& call) {
    *memory = nullptr;
    return guarded(function, [&] {
        const auto made = std::make_shared<RegisteredMemory>(communicator(comm).endpoint());
        const Result result = call(*made, communicator(comm).nic());
        if (result == Result::success) {
            *memory = new MemoryHandle(made);
        }
        return result;
    });
}
/// The parameter `kind` is ignored, because NCCL passes pinned host memory as GPU memory, too. The
/// library detects the type of the memory itself.
Result regmr(void* comm, void* data, std::size_t size, int /*kind*/, void** memory) {
    return registered("regMr", comm, memory, [&](RegisteredMemory& made, const Nic& nic) {
        return made.register_address(nic, data, size);
    });
}
Result regmr_dmabuf(void* comm, void* data, std::size_t size, int /*kind*/, std::uint64_t offset,
                    int fd, void** memory) {
    return registered("regMrDmaBuf", comm, memory, [&](RegisteredMemory& made, const Nic& nic) {
        return made.register_dmabuf(nic, data, size, offset, fd);
    });
}
Result deregister_memory(void* /*comm*/, void* memory) {
    delete static_cast<MemoryHandle*>(memory);
    return Result::success;
}

Result isend_v10(void* comm, void* data, std::size_t size, int tag, void* memory,
                 void* /*profiled*/, void** request) {
    *request = nullptr;
    return communicator(comm).send(*static_cast<const MemoryHandle*>(memory), data, size, tag,
                                   *request);
}
Result isend_v8(void* comm, void* data, int size, int tag, void* memory, void** request) {
    return isend_v10(comm, data, static_cast<std::size_t>(size), tag, memory, nullptr, request);
}

/// NCCL can call irecv() with abi::optional_receive_completion in *request. This value means that
/// NCCL's kernels detect the received data themselves. The plugin ignores it and completes the
/// receive only after the data has arrived, because the receive needs a request until then.
Result irecv_v10(void* comm, int count, void** data, std::size_t* sizes, int* tags, void** memories,
                 void** /*profiled*/, void** request) {
    *request = nullptr;
    if (count < 1 || static_cast<std::size_t>(count) > max_receives) {
        return Result::internal_error;
    }
    return communicator(comm).receive(static_cast<std::size_t>(count), data, sizes, tags, memories,
                                      *request);
}
Result irecv_v8(void* comm, int count, void** data, int* sizes, int* tags, void** memories,
                void** request) {
    std::array<std::size_t, max_receives> copies{};
    std::copy_n(sizes, std::clamp(count, 0, static_cast<int>(max_receives)), copies.begin());
    return irecv_v10(comm, count, data, copies.data(), tags, memories, nullptr, request);
}

Result iflush(void* comm, int count, void** data, int* sizes, void** memories, void** request) {
    *request = nullptr;
    if (count < 0 || static_cast<std::size_t>(count) > max_receives) {
        return Result::internal_error;
    }
    return communicator(comm).flush(static_cast<std::size_t>(count), data, sizes, memories,
                                    *request);
}

Result test(void* request, int* done, int* sizes) {
    *done = 0;
    auto& tested = *static_cast<Request*>(request);
    return tested.owner->test(tested, *done, sizes);
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

constexpr abi::MemoryFunctions memory_functions = {
    .register_memory = regmr,
    .register_dmabuf = regmr_dmabuf,
    .deregister_memory = deregister_memory,
};
// A null pointer means that the plugin does not support an optional function. The two null pointers
// below stand for functions that serve network operations in GPU kernels.
constexpr abi::RequestFunctions request_functions = {
    .iflush = iflush,
    .test = test,
    .close_send = close_communicator,
    .close_receive = close_communicator,
    .close_listen = close_listen,
    .get_device_memory = nullptr,
    .receive_consumed = nullptr,
};

/// NCCL's function table of version 11 or 12 (ncclNet_v11_t, ncclNet_v12_t).
template <class Properties, class Virtual>
constexpr abi::NetWithContext<Properties, Virtual> table_with_context = {
    .name = plugin_name,
    .init = init_v11,
    .devices = devices,
    .get_properties = get_properties<Properties>,
    .listen = listen_v11,
    .connect = connect_v11,
    .accept = accept,
    .memory = memory_functions,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .requests = request_functions,
    .make_virtual_device = make_virtual_device<Virtual>,
    .finalize = finalize,
    // NCCL would call this function with hints (the expected number of peers and flows), which the
    // plugin does not need.
    .set_attributes = nullptr,
};

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
    .connect = connect_v8,
    .accept = accept,
    .memory = memory_functions,
    .isend = isend_v8,
    .irecv = irecv_v8,
    .requests = request_functions,
};

// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("default")]] extern const abi::NetV10 ncclNetPlugin_v10;
const abi::NetV10 ncclNetPlugin_v10 = {
    .name = plugin_name,
    .init = init_v10,
    .devices = devices,
    .get_properties = get_properties<abi::PropertiesV10>,
    .listen = listen_v8,
    .connect = connect_v10,
    .accept = accept,
    .memory = memory_functions,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .requests = request_functions,
    .make_virtual_device = make_virtual_device<abi::VirtualDeviceV10>,
};

// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("default")]] extern const abi::NetV11 ncclNetPlugin_v11;
const abi::NetV11 ncclNetPlugin_v11 = table_with_context<abi::PropertiesV11, abi::VirtualDeviceV10>;

// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("default")]] extern const abi::NetV12 ncclNetPlugin_v12;
const abi::NetV12 ncclNetPlugin_v12 = table_with_context<abi::PropertiesV12, abi::VirtualDeviceV12>;

} // extern "C"
