// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// The part of NCCL's network plugin interface that this plugin uses. It is declared here so that
/// building does not need NCCL's headers. NCCL uses the newest interface version that NCCL and the
/// plugin both support. The layouts were compared with the headers of NCCL 2.30, which contain all
/// versions from 8 to 12; tests/integrations/nccl_net/layout_check.cpp repeats the comparison where
/// these headers are installed.
namespace nccl_net::abi {

/// ncclResult_t
enum class Result : int {
    success = 0,
    system_error = 2,
    internal_error = 3,
    invalid_usage = 5,
    remote_error = 6,
};

/// ncclDebugLogLevel
enum class LogLevel : int { warn = 2, info = 3 };
/// Bits of NCCL's ncclDebugLogSubSys, which can be combined.
inline constexpr unsigned long log_init = 0x1;
inline constexpr unsigned long log_net = 0x10;
inline constexpr unsigned long log_all = ~0UL;

/// ncclDebugLogger_t. The log level determines if NCCL prints @p file and @p line.
using Logger = void (*)(LogLevel level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
/// ncclProfilerCallback_t
using ProfilerCallback = Result (*)(void** event, int type, void* parent, std::int64_t plugin,
                                    void* data);

/// The kinds of memory (NCCL_PTR_*). A member `pointers` of a struct is a set of these bits; a
/// parameter `kind` of a function is one of them.
inline constexpr int pointer_host = 0x1;
inline constexpr int pointer_cuda = 0x2;
inline constexpr int pointer_dmabuf = 0x4;

/// The maximum size of a listener's handle in bytes.
inline constexpr std::size_t handle_size = 128;
/// The maximum number of receive requests that NCCL has in flight on a communicator. Each is a
/// grouped receive of up to `max_receives` messages.
inline constexpr std::size_t max_requests = 32;
/// NCCL_NET_OPTIONAL_RECV_COMPLETION, not in version 8. If NCCL does not need the completion of a
/// receive, it sets `*request` to this value before it calls irecv().
inline constexpr std::uintptr_t optional_receive_completion = 0x1;

/// ncclNetDeviceType and its version. device_type_host means that NCCL's GPU kernels do no network
/// operations.
inline constexpr int device_type_host = 0;
inline constexpr int device_version_none = 0;

/// ncclNetDeviceHandle_t, for network operations in GPU kernels. A plugin that reports
/// device_type_host does not use it.
struct DeviceHandle;

// A comment beside a field contains NCCL's name of the field, if NCCL uses another name.

/// The part of the properties from `name` to `regIsGlobal`, which is the same in all versions.
struct DeviceProperties {
    char* name;
    char* pci_path; // pciPath
    std::uint64_t guid;
    int pointers;      // ptrSupport
    int global_memory; // regIsGlobal
};
static_assert(sizeof(DeviceProperties) == 32);
/// The part from `speed` to `netDeviceVersion`, which is the same in all versions.
struct LinkProperties {
    int speed; // Mbit/s
    int port;
    float latency;      // microseconds; 0 if unknown
    int max_comms;      // maxComms
    int max_receives;   // maxRecvs
    int device_type;    // netDeviceType
    int device_version; // netDeviceVersion
};
static_assert(sizeof(LinkProperties) == 28);

/// ncclNetProperties_v8_t
struct PropertiesV8 {
    DeviceProperties device;
    LinkProperties link;
};
static_assert(sizeof(PropertiesV8) == 64);

/// ncclNetVDeviceProps_t: the physical devices that are merged into one virtual device. A device
/// that is not merged contains only itself.
template <std::size_t Max>
struct VirtualDevice {
    static constexpr std::size_t max = Max;
    int count; // ndevs
    std::array<int, Max> devices;

    friend bool operator==(const VirtualDevice&, const VirtualDevice&) = default;
};
/// For versions 10 and 11 of the interface.
using VirtualDeviceV10 = VirtualDevice<4>;
using VirtualDeviceV12 = VirtualDevice<8>;

/// The end of a struct to which later versions have added members.
struct Nothing {};
/// The members that versions 11 and 12 have added. In version 11, the rail and the plane are
/// padding.
struct LaterProperties {
    int max_multi_request; // maxMultiRequestSize
    std::int16_t rail;     // railId
    std::int16_t plane;    // planeId
};
inline constexpr std::int16_t undefined_id = -1;

/// ncclNetProperties_v10_t to ncclNetProperties_v12_t
template <class Virtual, class Later>
struct PropertiesWithMerged {
    DeviceProperties device;
    int force_flush; // forceFlush
    LinkProperties link;
    Virtual merged;             // vProps
    std::size_t max_message;    // maxP2pBytes
    std::size_t max_collective; // maxCollBytes
    [[no_unique_address]] Later later;
};
using PropertiesV10 = PropertiesWithMerged<VirtualDeviceV10, Nothing>;
using PropertiesV11 = PropertiesWithMerged<VirtualDeviceV10, LaterProperties>;
using PropertiesV12 = PropertiesWithMerged<VirtualDeviceV12, LaterProperties>;
static_assert(sizeof(PropertiesV10) == 104);
static_assert(sizeof(PropertiesV11) == 112);
static_assert(sizeof(PropertiesV12) == 128);

/// ncclNetCommConfig_t, from version 10 on.
struct Config {
    int traffic_class; // trafficClass
};
inline constexpr int undefined_traffic_class = -1;

/// The part of a function table from `accept` to `irecvConsumed`. It is the same in all versions,
/// except that version 8 has the type int for sizes, and no pointers for NCCL's profiler. If
/// `accept` sets the communicator to nullptr, or `isend` or `irecv` the request, NCCL calls the
/// function again.
/// @tparam Profiled  empty for version 8, otherwise void*
template <class Size, class... Profiled>
struct Functions {
    Result (*accept)(void* listener, void** comm, DeviceHandle**);
    Result (*register_memory)(void* comm, void* data, std::size_t size, int kind, void** memory);
    Result (*register_dmabuf)(void* comm, void* data, std::size_t size, int kind,
                              std::uint64_t offset, int fd, void** memory);
    Result (*deregister_memory)(void* comm, void* memory);
    Result (*isend)(void* comm, void* data, Size size, int tag, void* memory, Profiled...,
                    void** request);
    Result (*irecv)(void* comm, int count, void** data, Size* sizes, int* tags, void** memories,
                    Profiled*..., void** request);
    Result (*iflush)(void* comm, int count, void** data, int* sizes, void** memories,
                     void** request);
    Result (*test)(void* request, int* done, int* sizes);
    Result (*close_send)(void* comm);
    Result (*close_receive)(void* comm);
    Result (*close_listen)(void* listener);
    Result (*get_device_memory)(void* comm, void* memory, void** device_memory);
    Result (*receive_consumed)(void* comm, int count, void* request);
};
using FunctionsV8 = Functions<int>;
using FunctionsV10 = Functions<std::size_t, void*>;

/// The functions that version 10 has added: NCCL can combine several NICs into one virtual device.
template <class Virtual>
struct LaterV10 {
    Result (*make_virtual_device)(int* device, Virtual*); // makeVDevice
};
/// The functions that versions 10 and 11 have added: NCCL calls init() and finalize() once for each
/// NCCL communicator.
template <class Virtual>
struct LaterV11 {
    Result (*make_virtual_device)(int* device, Virtual*);
    Result (*finalize)(void* context);
    Result (*set_attributes)(void* context, void* attributes); // setNetAttr
};

/// ncclNet_v8_t to ncclNet_v12_t
template <class Init, class Properties, class Listen, class Connect, class Functions, class Later>
struct Net {
    const char* name;
    Init* init;
    Result (*devices)(int* count);
    Result (*get_properties)(int device, Properties*);
    Listen* listen;
    Connect* connect;
    Functions functions;
    [[no_unique_address]] Later later;
};

using Listen = Result(int device, void* handle, void** listener);
/// ncclNet_v8_t, which the plugin exports as ncclNetPlugin_v8.
using NetV8 =
    Net<Result(Logger), PropertiesV8, Listen,
        Result(int device, void* handle, void** comm, DeviceHandle**), FunctionsV8, Nothing>;
/// ncclNet_v10_t: connect() gets a traffic class for each connection.
using NetV10 = Net<Result(Logger, ProfilerCallback), PropertiesV10, Listen,
                   Result(int device, Config*, void* handle, void** comm, DeviceHandle**),
                   FunctionsV10, LaterV10<VirtualDeviceV10>>;
/// ncclNet_v11_t and ncclNet_v12_t: the functions get the NCCL communicator, as a context.
template <class Properties, class Virtual>
using NetWithContext =
    Net<Result(void** context, std::uint64_t id, Config*, Logger, ProfilerCallback), Properties,
        Result(void* context, int device, void* handle, void** listener),
        Result(void* context, int device, void* handle, void** comm, DeviceHandle**), FunctionsV10,
        LaterV11<Virtual>>;
using NetV11 = NetWithContext<PropertiesV11, VirtualDeviceV10>;
using NetV12 = NetWithContext<PropertiesV12, VirtualDeviceV12>;
static_assert(sizeof(NetV8) == 19 * sizeof(void*));
static_assert(sizeof(NetV10) == 20 * sizeof(void*));
static_assert(sizeof(NetV11) == 22 * sizeof(void*));
static_assert(sizeof(NetV12) == 22 * sizeof(void*));

} // namespace nccl_net::abi
