// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

/// An RDMA device of this machine. A Device only names the device: create a Context to open it. The
/// object keeps the list of ibv_get_device_list(3) that contains the device alive.
class RDMABUF_EXPORT Device {
  public:
    /// Returns the name of the device in /sys/class/infiniband, for example "mlx5_0".
    [[nodiscard]] std::string name() const;
    /// Returns the node GUID in host byte order, or 0 if the driver has not set the GUID yet.
    [[nodiscard]] std::uint64_t guid() const noexcept;
    /// Returns the name of the kernel driver of the device, read from sysfs, for example
    /// "mlx5_core". Returns "rxe" for Soft-RoCE, and usually an empty string for other software
    /// devices.
    [[nodiscard]] std::string driver() const;

    [[nodiscard]] ibv_device* native() const noexcept { return device_; }

  private:
    friend class DeviceList;
    Device(std::shared_ptr<ibv_device*> list, ibv_device* device) noexcept
        : list_(std::move(list)), device_(device) {}

    std::shared_ptr<ibv_device*> list_;
    ibv_device* device_;
};

/// A list of the RDMA devices of this machine at the time of the construction. An empty list is not
/// an error.
class RDMABUF_EXPORT DeviceList {
  public:
    /// Lists the devices. See ibv_get_device_list(3).
    /// @throws Error ENOSYS if the kernel module ib_uverbs is not loaded; EPERM if permission is
    ///         denied; ENOMEM if there is not enough memory for the list
    DeviceList();

    [[nodiscard]] std::size_t size() const noexcept { return devices_.size(); }
    [[nodiscard]] bool empty() const noexcept { return devices_.empty(); }
    [[nodiscard]] auto begin() const noexcept { return devices_.begin(); }
    [[nodiscard]] auto end() const noexcept { return devices_.end(); }
    [[nodiscard]] const Device& operator[](std::size_t i) const noexcept { return devices_[i]; }

    /// Returns the first device of the list.
    /// @throws Error ENODEV if the list is empty
    [[nodiscard]] const Device& front() const;
    /// Returns the device with the name @p name.
    /// @throws Error ENODEV if the list does not contain the device. The error text lists all
    ///         devices. If the list is empty, the error text names the likely causes: the NIC's
    ///         driver or ib_uverbs is not loaded, rdma-core has no provider for the NIC, or a
    ///         container has no /dev/infiniband.
    [[nodiscard]] const Device& find(std::string_view name) const;
    /// Returns the device with the node GUID @p guid, which is in host byte order.
    /// @throws Error ENODEV if the list does not contain the device. The error text is the same as
    ///         that of find() for a name.
    [[nodiscard]] const Device& find(std::uint64_t guid) const;

  private:
    std::vector<Device> devices_;
};

/// Formats a GUID as ibv_devinfo(1) does: 0x0002c903000ae254 as "0002:c903:000a:e254".
/// @param guid  in host byte order
[[nodiscard]] RDMABUF_EXPORT std::string guid_to_string(std::uint64_t guid);

/// A global identifier (GID): 128 bits in network byte order, in the format of an IPv6 address.
struct RDMABUF_EXPORT Gid {
    std::array<std::uint8_t, 16> bytes{};

    [[nodiscard]] static Gid from_native(const union ibv_gid& gid) noexcept;
    [[nodiscard]] union ibv_gid native() const noexcept;

    /// Returns true if the GID is an IPv4-mapped address (RFC 4291), as RoCE uses for IPv4.
    [[nodiscard]] bool is_ipv4_mapped() const noexcept;
    /// Returns true if the GID is a link-local address (fe80::/10).
    [[nodiscard]] bool is_link_local() const noexcept;
    /// Returns true if all bits of the GID are zero, as in an unused entry of a GID table.
    [[nodiscard]] bool is_zero() const noexcept;

    friend bool operator==(const Gid&, const Gid&) noexcept = default;
};

/// Formats a GID in IPv6 notation.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Gid& gid);

/// The protocol that uses an entry of the GID table. See ibv_query_gid_ex(3).
enum class GidType : std::uint8_t {
    infiniband = IBV_GID_TYPE_IB,
    roce_v1 = IBV_GID_TYPE_ROCE_V1,
    roce_v2 = IBV_GID_TYPE_ROCE_V2,
};

/// Returns "IB", "RoCE v1" or "RoCE v2".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(GidType type) noexcept;

/// An entry of the GID table of a port. The GID of the entry is not zero.
struct GidEntry {
    Gid gid;
    /// The index of this entry in the GID table. AddressHandleOptions::gid_index and
    /// QueuePairOptions::gid_index take this index.
    std::uint8_t index = 0;
    GidType type = GidType::infiniband;
    std::uint8_t port = 0;
    /// The index of the network interface to which the GID belongs, as if_nametoindex(3) returns
    /// the index; 0 for InfiniBand.
    std::uint32_t netdev_ifindex = 0;
};

/// The features and limits of an EFA device for SRD queue pairs
/// (QueuePairType::scalable_reliable_datagram). Context::max_message_size() returns the maximum
/// size of a sent message. See efadv_query_device(3).
struct SrdAttributes {
    /// True if the device supports RDMA reads. A read can have only one scatter-gather entry.
    bool rdma_read = false;
    /// True if the device supports RDMA writes, also with immediate data. A write can have only one
    /// scatter-gather entry, and no inline data.
    bool rdma_write = false;
    /// The maximum size in bytes of one RDMA read or write; 0 if the device supports neither.
    std::uint32_t max_rdma_size = 0;
    /// True if QueuePairOptions::rnr_retry may be less than 7. With the value 7, the NIC retries
    /// without limit.
    bool rnr_retry = false;
    /// True if an SrdCompletionQueue, which reports the GIDs of unknown senders, can be created.
    bool sender_gid = false;
    /// The five members below are the maximum values of the members of QueuePairOptions with the
    /// same names.
    std::uint32_t max_send_wr = 0;
    std::uint32_t max_recv_wr = 0;
    std::uint32_t max_send_sge = 0;
    std::uint32_t max_recv_sge = 0;
    std::uint32_t max_inline_data = 0;
};

namespace detail {
struct RDMABUF_EXPORT CloseDevice {
    static constexpr const char* name = "ibv_close_device";
    static int call(ibv_context* context) noexcept;
};
} // namespace detail

/// If a timeout parameter has this value, the function waits without limit.
inline constexpr std::chrono::milliseconds wait_forever{-1};

/// The attributes of a device. Fields that the provider does not report are 0. See
/// ibv_query_device_ex(3).
struct DeviceAttributes {
    ibv_device_attr_ex native{};

    /// Returns the maximum size of a memory region in bytes.
    [[nodiscard]] std::uint64_t max_mr_size() const noexcept {
        return native.orig_attr.max_mr_size;
    }
    /// Returns the size in bytes of the memory on the NIC that DeviceMemory can allocate; 0 if the
    /// NIC has no such memory. The mana provider always reports 0, even if the NIC has such memory.
    [[nodiscard]] std::uint64_t max_dm_size() const noexcept { return native.max_dm_size; }
    /// Returns the on-demand paging capabilities, the IBV_ODP_* bits of ibv_odp_caps::general_caps.
    [[nodiscard]] std::uint64_t odp_capabilities() const noexcept {
        return native.odp_caps.general_caps;
    }
    /// Returns whether the device supports remote atomics. See make_compare_swap() for atomicity
    /// with respect to the CPU.
    [[nodiscard]] bool atomics() const noexcept {
        return native.orig_attr.atomic_cap != IBV_ATOMIC_NONE;
    }
    [[nodiscard]] std::uint8_t port_count() const noexcept {
        return native.orig_attr.phys_port_cnt;
    }
    [[nodiscard]] std::string firmware_version() const { return native.orig_attr.fw_ver; }
};

/// The kind of the object to which an asynchronous event belongs.
enum class AsyncEventSource : std::uint8_t {
    device,
    port,
    queue_pair,
    completion_queue,
    shared_receive_queue,
    work_queue,
};

/// An asynchronous event. See ibv_get_async_event(3).
struct AsyncEvent {
    ibv_event_type type{};
    /// The ibv_qp, ibv_cq, ibv_srq or ibv_wq to which the event belongs; nullptr for events of a
    /// device or a port. If Context::wait_async_event() returned the event, compare the pointer but
    /// do not dereference it: the event is already acknowledged, so another thread may have
    /// destroyed the object.
    const void* object = nullptr;
    /// The port number for port events; 0 for other events.
    std::uint8_t port = 0;
    AsyncEventSource source = AsyncEventSource::device;

    /// Returns whether the object of the event is @p owner: a QueuePair, CompletionQueue or
    /// SharedReceiveQueue.
    template <class Owner>
    [[nodiscard]] bool is_of(const Owner& owner) const noexcept {
        return object != nullptr && object == owner.native();
    }
    /// Returns the text of ibv_event_type_str(3), such as "port active". The string is static.
    [[nodiscard]] const char* name() const noexcept { return ibv_event_type_str(type); }
};

namespace detail {
/// A deleter that acknowledges an asynchronous event and frees the memory of the event.
struct RDMABUF_EXPORT AckAsyncEvent {
    void operator()(ibv_async_event* event) const noexcept;
};
} // namespace detail

/// An asynchronous event that is not acknowledged yet. The destructor acknowledges the event. The
/// object of the event, for example a queue pair, exists until the acknowledgement, because
/// destroying the queue pair blocks until the event is acknowledged. A thread that destroys the
/// queue pair must destroy its own PendingAsyncEvent first; otherwise the thread blocks forever.
/// PendingAsyncEvent can be moved but not copied.
class RDMABUF_EXPORT PendingAsyncEvent {
  public:
    /// Returns the event. The program may use the object in AsyncEvent::object until this
    /// PendingAsyncEvent is destroyed.
    [[nodiscard]] AsyncEvent event() const noexcept;
    /// Returns the event of ibv_get_async_event(3), which this object owns, or nullptr after a move
    /// from this object.
    [[nodiscard]] const ibv_async_event* native() const noexcept { return event_.get(); }

  private:
    friend class Context;
    using Handle = std::unique_ptr<ibv_async_event, detail::AckAsyncEvent>;
    explicit PendingAsyncEvent(Handle event) noexcept : event_(std::move(event)) {}

    Handle event_;
};

/// An open device. Copies of a Context share the device. The device is closed when all copies, and
/// all objects created from them, are destroyed. After close(), release() or a move, all functions
/// that use the device throw Error EBADF.
class RDMABUF_EXPORT Context {
  public:
    /// Opens the device. See ibv_open_device(3).
    /// @throws Error
    ///   - EACCES, EPERM: no permission for /dev/infiniband/uverbsN. Check the udev rules or, in a
    ///     container, the option `--device`
    ///   - ENODEV: the device was removed
    explicit Context(const Device& device);

    /// Opens the device with the name @p name, for example "mlx5_0".
    /// @throws Error ENODEV if the machine has no such device (the error text lists all devices);
    ///         other errors are those of DeviceList() and the constructor
    [[nodiscard]] static Context open(std::string_view name);
    /// Opens the device with the node GUID @p guid, which is in host byte order.
    /// @throws Error with the errors of open() for a name
    [[nodiscard]] static Context open(std::uint64_t guid);
    /// Opens the first device that has an active port. If there is none, opens the first device
    /// that can be opened and whose ports can be queried.
    /// @throws Error with the errors of DeviceList(), or ENODEV if the machine has no RDMA device.
    ///         If no device can be opened and queried, throws the error of the last device.
    [[nodiscard]] static Context open_first();

    /// Takes ownership of an ibv_context that other code has opened. ibv_close_device(3) is called
    /// when all copies of the result, and all objects created from them, are destroyed.
    [[nodiscard]] static Context adopt(ibv_context* context);
    /// Creates a context on the device file of another process, so that this process can import the
    /// verbs objects of the other process by their handles. See ibv_import_device(3).
    ///
    /// The kernel destroys the objects of a device file when the last descriptor of the file is
    /// closed. So this context keeps the objects of the other process alive.
    /// @param command_fd  a duplicate of ibv_context::cmd_fd of the other process, as
    ///                    receive_objects() returns it. The context takes ownership.
    /// @throws Error
    ///   - EOPNOTSUPP: the provider cannot import a context (of the providers in
    ///     rdma-core, only libmlx5 can; softverbs can)
    ///   - EINVAL, ENODEV, ENOENT: the descriptor is not that of an RDMA device
    ///   - EBADF: @p command_fd is empty, is not open, or was opened with O_PATH
    [[nodiscard]] static Context import_descriptor(UniqueFd command_fd);
    /// Returns a Context that uses @p context but does not own it. Other code must close @p
    /// context, after all objects created from it are destroyed.
    [[nodiscard]] static Context borrow(ibv_context* context);

    [[nodiscard]] ibv_context* native() const noexcept { return handle_.get(); }
    /// Transfers ownership to the caller, which must close the returned context. If the context was
    /// borrowed, only its owner may close it.
    [[nodiscard]] ibv_context* release() noexcept { return handle_.release(); }
    /// Closes the device.
    /// @throws Error EBUSY if copies of this object, or objects created from it, still exist; the
    ///         device then stays open
    void close() { handle_.close(); }

    [[nodiscard]] std::string device_name() const;
    [[nodiscard]] DeviceAttributes attributes() const;

    /// Queries the attributes of a port. See ibv_query_port(3).
    /// @param port  the port number; the first port is 1
    /// @throws Error EINVAL if the device has no such port
    [[nodiscard]] ibv_port_attr port(std::uint8_t port) const;
    /// Returns the maximum size of a message in bytes: the smallest ibv_port_attr::max_msg_sz of
    /// all ports. Ports that report 0 are ignored; if all do, the result is 2 GiB, the maximum of
    /// InfiniBand.
    [[nodiscard]] std::uint32_t max_message_size() const;
    /// Returns the entries of the GID table of a port that contain a GID, in ascending order of
    /// index. Entries with an index above 255 are left out, because an address vector has 8 bits
    /// for the index. See ibv_query_gid_table(3).
    [[nodiscard]] std::vector<GidEntry> gid_table(std::uint8_t port) const;
    /// Returns the preferred GID for connections through a port. The order of preference is: RoCE
    /// v2 over IPv4, RoCE v2 over a routable IPv6 address, RoCE v2 over a link-local address, RoCE
    /// v1, InfiniBand.
    /// @throws Error EADDRNOTAVAIL if gid_table() is empty, for example because the network
    ///         interface has no IP address
    [[nodiscard]] GidEntry best_gid(std::uint8_t port) const;

    /// Waits for the next asynchronous event and acknowledges the event. Several threads may wait;
    /// each event is returned to one thread. Makes ibv_context::async_fd non-blocking.
    /// @param timeout  0 to return at once, wait_forever for no limit
    /// @return the event; std::nullopt if the timeout has expired
    [[nodiscard]] std::optional<AsyncEvent> wait_async_event(
        std::chrono::milliseconds timeout) const;
    /// Reads the next asynchronous event without waiting. The destructor of the result acknowledges
    /// the event. The program can use the object in AsyncEvent::object while the result exists.
    /// Makes ibv_context::async_fd non-blocking.
    /// @return the event; std::nullopt if there is no event
    [[nodiscard]] std::optional<PendingAsyncEvent> get_async_event() const;
    /// Returns the file descriptor for epoll(7), which is readable when an asynchronous event is
    /// pending. Makes the descriptor non-blocking. The context owns the descriptor.
    [[nodiscard]] int async_fd() const;

    /// Probes whether this device, its user-space provider and this kernel can register dma-bufs.
    /// The probe tries to register the invalid descriptor -1. If dma-bufs are supported, the
    /// registration fails with EBADF. The probe does not test the dma-bufs of a particular
    /// exporter: the device can still reject them.
    [[nodiscard]] Availability dmabuf_import() const;

    /// Returns whether the device supports SRD queue pairs
    /// (QueuePairType::scalable_reliable_datagram). If the device does not support them, the result
    /// contains the reason, for example that the device is not an EFA device, or that libefa is not
    /// loaded.
    [[nodiscard]] Availability srd() const;
    /// Queries the limits and features of SRD queue pairs on the device. See efadv_query_device(3).
    /// @throws Error if srd() is not available; the error text has the reason. The errno value is
    ///         that of efadv_query_device(3), or EOPNOTSUPP if this function does not exist.
    [[nodiscard]] SrdAttributes srd_attributes() const;

    friend bool operator==(const Context& a, const Context& b) noexcept {
        return a.native() == b.native();
    }

  private:
    using Handle = detail::shared_handle<ibv_context, detail::CloseDevice>;
    explicit Context(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

/// Returns the nominal speed of a port in Mbit/s, from ibv_port_attr::active_speed and
/// active_width, or from active_speed_ex where rdma-core has it. Returns 0 if the speed code or the
/// width code is unknown. The codes are those of LinkSpeedActive and LinkWidthActive of PortInfo in
/// the InfiniBand specification; RoCE devices use the same codes.
[[nodiscard]] RDMABUF_EXPORT std::uint32_t link_speed(const ibv_port_attr& port) noexcept;

} // namespace rdmabuf
