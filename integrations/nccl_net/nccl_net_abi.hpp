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
struct DeviceHandle {
    int type;    // netDeviceType
    int version; // netDeviceVersion
    void* handle;
    std::size_t size;
    int needs_progress; // needsProxyProgress
};
static_assert(sizeof(DeviceHandle) == 32);

// A comment beside a field contains NCCL's name of the field, if NCCL uses another name.

struct PropertiesV8 {
    char* name;
    char* pci_path; // pciPath
    std::uint64_t guid;
    int pointers;      // ptrSupport
    int global_memory; // regIsGlobal
    int speed;         // Mbit/s
    int port;
    float latency;      // microseconds; 0 if unknown
    int max_comms;      // maxComms
    int max_receives;   // maxRecvs
    int device_type;    // netDeviceType
    int device_version; // netDeviceVersion
};
static_assert(sizeof(PropertiesV8) == 64);
static_assert(offsetof(PropertiesV8, latency) == 40);
static_assert(offsetof(PropertiesV8, device_version) == 56);

/// ncclNetVDeviceProps_t: the physical devices that are merged into one virtual device. A device
/// that is not merged contains only itself.
template <std::size_t Max>
struct VirtualDevice {
    static constexpr std::size_t max = Max;
    int count; // ndevs
    std::array<int, Max> devices;
};
/// For versions 10 and 11 of the interface.
using VirtualDeviceV10 = VirtualDevice<4>;
using VirtualDeviceV12 = VirtualDevice<8>;

struct PropertiesV10 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointers;
    int global_memory;
    int force_flush; // forceFlush
    int speed;
    int port;
    float latency;
    int max_comms;
    int max_receives;
    int device_type;
    int device_version;
    VirtualDeviceV10 merged;    // vProps
    std::size_t max_message;    // maxP2pBytes
    std::size_t max_collective; // maxCollBytes
};
static_assert(sizeof(PropertiesV10) == 104);
static_assert(offsetof(PropertiesV10, force_flush) == 32);
static_assert(offsetof(PropertiesV10, merged) == 64);
static_assert(offsetof(PropertiesV10, max_message) == 88);

struct PropertiesV11 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointers;
    int global_memory;
    int force_flush;
    int speed;
    int port;
    float latency;
    int max_comms;
    int max_receives;
    int device_type;
    int device_version;
    VirtualDeviceV10 merged;
    std::size_t max_message;
    std::size_t max_collective;
    int max_multi_request; // maxMultiRequestSize
};
static_assert(sizeof(PropertiesV11) == 112);
static_assert(offsetof(PropertiesV11, max_multi_request) == 104);

struct PropertiesV12 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointers;
    int global_memory;
    int force_flush;
    int speed;
    int port;
    float latency;
    int max_comms;
    int max_receives;
    int device_type;
    int device_version;
    VirtualDeviceV12 merged;
    std::size_t max_message;
    std::size_t max_collective;
    int max_multi_request;
    std::int16_t rail;  // railId
    std::int16_t plane; // planeId
};
inline constexpr std::int16_t undefined_id = -1;
static_assert(sizeof(PropertiesV12) == 128);
static_assert(offsetof(PropertiesV12, force_flush) == 32);
static_assert(offsetof(PropertiesV12, merged) == 64);
static_assert(offsetof(PropertiesV12, max_message) == 104);
static_assert(offsetof(PropertiesV12, plane) == 126);

/// ncclNetCommConfig_t, from version 10 on.
struct Config {
    int traffic_class; // trafficClass
};
inline constexpr int undefined_traffic_class = -1;

/// The functions for memory registration. They are the same in all versions of the function table.
struct MemoryFunctions {
    Result (*register_memory)(void* comm, void* data, std::size_t size, int kind, void** memory);
    Result (*register_dmabuf)(void* comm, void* data, std::size_t size, int kind,
                              std::uint64_t offset, int fd, void** memory);
    Result (*deregister_memory)(void* comm, void* memory);
};
/// The part of each table of functions that is the same in all versions: iflush to irecvConsumed.
struct RequestFunctions {
    Result (*iflush)(void* comm, int count, void** data, int* sizes, void** memories,
                     void** request);
    Result (*test)(void* request, int* done, int* sizes);
    Result (*close_send)(void* comm);
    Result (*close_receive)(void* comm);
    Result (*close_listen)(void* listener);
    Result (*get_device_memory)(void* comm, void* memory, void** device_memory);
    Result (*receive_consumed)(void* comm, int count, void* request);
};

/// ncclNet_v8_t, which the plugin exports as ncclNetPlugin_v8. If `connect` or `accept` sets the
/// communicator to nullptr, NCCL calls the function again. If `isend` or `irecv` sets the request
/// to nullptr, NCCL also calls the function again.
struct NetV8 {
    const char* name;
    Result (*init)(Logger);
    Result (*devices)(int* count);
    Result (*get_properties)(int device, PropertiesV8*);
    Result (*listen)(int device, void* handle, void** listener);
    Result (*connect)(int device, void* handle, void** comm, DeviceHandle**);
    Result (*accept)(void* listener, void** comm, DeviceHandle**);
    MemoryFunctions memory;
    Result (*isend)(void* comm, void* data, int size, int tag, void* memory, void** request);
    Result (*irecv)(void* comm, int count, void** data, int* sizes, int* tags, void** memories,
                    void** request);
    RequestFunctions requests;
};
static_assert(sizeof(NetV8) == 19 * sizeof(void*));

/// ncclNet_v10_t. Changes since v8: sizes have the type size_t, NCCL can combine several NICs into
/// one virtual device (makeVDevice), connect() gets a traffic class for each connection, and some
/// functions have parameters for NCCL's profiler.
struct NetV10 {
    const char* name;
    Result (*init)(Logger, ProfilerCallback);
    Result (*devices)(int* count);
    Result (*get_properties)(int device, PropertiesV10*);
    Result (*listen)(int device, void* handle, void** listener);
    Result (*connect)(int device, Config*, void* handle, void** comm, DeviceHandle**);
    Result (*accept)(void* listener, void** comm, DeviceHandle**);
    MemoryFunctions memory;
    Result (*isend)(void* comm, void* data, std::size_t size, int tag, void* memory, void* profiled,
                    void** request);
    Result (*irecv)(void* comm, int count, void** data, std::size_t* sizes, int* tags,
                    void** memories, void** profiled, void** request);
    RequestFunctions requests;
    Result (*make_virtual_device)(int* device, VirtualDeviceV10*); // makeVDevice
};
static_assert(sizeof(NetV10) == 20 * sizeof(void*));

/// ncclNet_v11_t and ncclNet_v12_t: NCCL calls init() and finalize() once for each NCCL
/// communicator.
template <class Properties, class Virtual>
struct NetWithContext {
    const char* name;
    Result (*init)(void** context, std::uint64_t id, Config*, Logger, ProfilerCallback);
    Result (*devices)(int* count);
    Result (*get_properties)(int device, Properties*);
    Result (*listen)(void* context, int device, void* handle, void** listener);
    Result (*connect)(void* context, int device, void* handle, void** comm, DeviceHandle**);
    Result (*accept)(void* listener, void** comm, DeviceHandle**);
    MemoryFunctions memory;
    Result (*isend)(void* comm, void* data, std::size_t size, int tag, void* memory, void* profiled,
                    void** request);
    Result (*irecv)(void* comm, int count, void** data, std::size_t* sizes, int* tags,
                    void** memories, void** profiled, void** request);
    RequestFunctions requests;
    Result (*make_virtual_device)(int* device, Virtual*);
    Result (*finalize)(void* context);
    Result (*set_attributes)(void* context, void* attributes); // setNetAttr
};
using NetV11 = NetWithContext<PropertiesV11, VirtualDeviceV10>;
using NetV12 = NetWithContext<PropertiesV12, VirtualDeviceV12>;
static_assert(sizeof(NetV11) == 22 * sizeof(void*));
static_assert(sizeof(NetV12) == 22 * sizeof(void*));

} // namespace nccl_net::abi
