// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdmabuf/availability.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/device.hpp>
#include <rdmabuf/gid.hpp>
#include <rdmabuf/srd_attributes.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT CloseDevice {
    static constexpr const char* name = "ibv_close_device";
    static int call(ibv_context* context) noexcept;
};
} // namespace detail

/// As a timeout: wait for as long as it takes.
inline constexpr std::chrono::milliseconds wait_forever{-1};

/// What a device can do. ibv_query_device_ex(3); fields a provider does not report are 0.
struct DeviceAttributes {
    ibv_device_attr_ex native{};

    /// The largest range one registration may cover, in bytes.
    [[nodiscard]] std::uint64_t max_mr_size() const noexcept {
        return native.orig_attr.max_mr_size;
    }
    /// Device memory that can be allocated, in bytes; 0 where there is none. (mana reports 0
    /// although it has some: only allocating tells.)
    [[nodiscard]] std::uint64_t max_dm_size() const noexcept { return native.max_dm_size; }
    /// IBV_ODP_* bits: whether memory may be registered on demand.
    [[nodiscard]] std::uint64_t odp_capabilities() const noexcept {
        return native.odp_caps.general_caps;
    }
    /// Whether remote atomics work at all on this device.
    [[nodiscard]] bool atomics() const noexcept {
        return native.orig_attr.atomic_cap != IBV_ATOMIC_NONE;
    }
    [[nodiscard]] std::uint8_t port_count() const noexcept {
        return native.orig_attr.phys_port_cnt;
    }
    [[nodiscard]] std::string firmware_version() const { return native.orig_attr.fw_ver; }
};

/// The kind of object that reports an asynchronous event.
enum class AsyncEventSource : std::uint8_t {
    device,
    port,
    queue_pair,
    completion_queue,
    shared_receive_queue,
    work_queue,
};

/// An asynchronous event. ibv_get_async_event(3).
struct AsyncEvent {
    ibv_event_type type{};
    /// The ibv_qp, ibv_cq, ibv_srq or ibv_wq that reports the event; nullptr for events of a device
    /// or a port. Context::wait_async_event() acknowledges the event, so another thread may have
    /// destroyed the object: compare the pointer, and do not dereference it.
    const void* object = nullptr;
    /// The port of port events; otherwise 0.
    std::uint8_t port = 0;
    AsyncEventSource source = AsyncEventSource::device;

    /// Whether @p owner reports the event: a QueuePair, CompletionQueue or SharedReceiveQueue.
    template <class Owner>
    [[nodiscard]] bool is_of(const Owner& owner) const noexcept {
        return object != nullptr && object == owner.native();
    }
    /// ibv_event_type_str(3).
    [[nodiscard]] const char* name() const noexcept { return ibv_event_type_str(type); }
};

namespace detail {
/// Acknowledges an event, and frees the memory that contains it.
struct RDMABUF_EXPORT AckAsyncEvent {
    void operator()(ibv_async_event* event) const noexcept;
};
} // namespace detail

/// An asynchronous event that is not acknowledged yet: the destructor acknowledges it. Until then
/// destroying the object of the event blocks, so the object exists. A thread that destroys the
/// object must therefore destroy its PendingAsyncEvent first. Moves only.
class RDMABUF_EXPORT PendingAsyncEvent {
  public:
    /// The event. Its object may be used until this is destroyed.
    [[nodiscard]] AsyncEvent event() const noexcept;
    /// The event as verbs returned it; nullptr after a move.
    [[nodiscard]] const ibv_async_event* native() const noexcept { return event_.get(); }

  private:
    friend class Context;
    using Handle = std::unique_ptr<ibv_async_event, detail::AckAsyncEvent>;
    explicit PendingAsyncEvent(Handle event) noexcept : event_(std::move(event)) {}

    Handle event_;
};

/// An opened device. Copies share it; it closes when the last copy, and the last object made from
/// it, is gone. After close(), release() or a move, the functions that use the device throw Error
/// EBADF.
class RDMABUF_EXPORT Context {
  public:
    /// @throws Error EACCES or EPERM on /dev/infiniband/uverbsN (udev rules; `--device` of a
    ///         container), ENODEV when the device went away. ibv_open_device(3).
    explicit Context(const Device& device);

    /// Opens the device of that name. @throws Error ENODEV: the hint lists those there are.
    [[nodiscard]] static Context open(std::string_view name);
    /// Opens the device with that node GUID, in host byte order.
    [[nodiscard]] static Context open(std::uint64_t guid);
    /// Opens the first device that can be opened and has an active port or, where none has one, the
    /// first that can be opened. @throws Error ENODEV when there is none, otherwise what kept the
    /// last one from opening.
    [[nodiscard]] static Context open_first();

    /// Takes over a context opened elsewhere: the last holder calls ibv_close_device on it.
    [[nodiscard]] static Context adopt(ibv_context* context);
    /// Opens the device file of another process once more: @p command_fd is a duplicate of that
    /// process's ibv_context::cmd_fd, which receive_objects() delivers. Objects of the other
    /// process can then be imported by their handles. The context closes the descriptor at its end.
    /// The kernel destroys the objects of a device file when the last descriptor of the file is
    /// closed, so this context keeps those of the other process alive.
    /// @throws Error EOPNOTSUPP where the provider cannot import (only libmlx5 can), ENODEV or
    ///         ENOENT for a descriptor that is not of an RDMA device, EBADF for none.
    ///         ibv_import_device(3).
    [[nodiscard]] static Context import_descriptor(UniqueFd command_fd);
    /// Uses a context that somebody else closes, after everything made from this one is gone.
    [[nodiscard]] static Context borrow(ibv_context* context);

    [[nodiscard]] ibv_context* native() const noexcept { return handle_.get(); }
    /// The caller closes the context from now on.
    [[nodiscard]] ibv_context* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while copies, or objects made from it, exist.
    void close() { handle_.close(); }

    [[nodiscard]] std::string device_name() const;
    [[nodiscard]] DeviceAttributes attributes() const;

    /// @param port  from 1. @throws Error EINVAL for a port the device does not have.
    [[nodiscard]] ibv_port_attr port(std::uint8_t port) const;
    /// The maximum size of a message in bytes: the smallest ibv_port_attr::max_msg_sz of the ports.
    [[nodiscard]] std::uint32_t max_message_size() const;
    /// The used entries of a port's GID table in index order. ibv_query_gid_table(3).
    [[nodiscard]] std::vector<GidEntry> gid_table(std::uint8_t port) const;
    /// The entry a connection should use: RoCE v2 over IPv4, then RoCE v2 over a routable IPv6
    /// address, then RoCE v2 link local, then RoCE v1, then InfiniBand.
    /// @throws Error EADDRNOTAVAIL when the table is empty: the interface has no address.
    [[nodiscard]] GidEntry best_gid(std::uint8_t port) const;

    /// Waits for the next asynchronous event and acknowledges it. Several threads may wait; each
    /// event goes to one of them. Makes the descriptor of the events (async_fd) non-blocking.
    /// @param timeout  zero polls, wait_forever waits
    /// @return nothing when the time has run out
    [[nodiscard]] std::optional<AsyncEvent> wait_async_event(
        std::chrono::milliseconds timeout) const;
    /// Takes the next asynchronous event without waiting. The program can use the object of the
    /// event until it destroys the result, which acknowledges the event. Makes the descriptor of
    /// the events non-blocking.
    /// @return nothing when there is no event
    [[nodiscard]] std::optional<PendingAsyncEvent> get_async_event() const;
    /// The file descriptor of the asynchronous events, which is readable when there is an event:
    /// for epoll(7). Makes it non-blocking. The context owns it.
    [[nodiscard]] int async_fd() const;

    /// Whether this device, its user-space provider and this kernel can register dma-bufs. Found
    /// out with a registration that must fail: of descriptor -1, which whoever gets as far as
    /// looking at it answers with EBADF. It tells nothing about any exporter: dma-buf is a matter
    /// between two devices, and only a registration of a real buffer proves a pair.
    [[nodiscard]] Availability dmabuf_import() const;

    /// Whether the device has SRD queue pairs (QueuePairType::scalable_reliable_datagram), or why
    /// not: it is not an EFA device, or libefa is not loaded.
    [[nodiscard]] Availability srd() const;
    /// Queries what SRD queue pairs of the device support. efadv_query_device(3).
    /// @throws Error EOPNOTSUPP where srd() is not available, with the same reason
    [[nodiscard]] SrdAttributes srd_attributes() const;

    friend bool operator==(const Context& a, const Context& b) noexcept {
        return a.native() == b.native();
    }

  private:
    using Handle = detail::shared_handle<ibv_context, detail::CloseDevice>;
    explicit Context(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

} // namespace rdmabuf
