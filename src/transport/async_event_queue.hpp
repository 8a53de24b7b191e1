// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <mutex>
#include <span>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

struct DeviceEvent {
    const ibv_context* device = nullptr;
    AsyncEvent event{};
};

/// The asynchronous events of the devices of one endpoint.
///
/// ibv_get_async_event(3) returns each event of an ibv_context only once, but several endpoints of
/// the process may use the same ibv_context. Therefore take() adds each event that endpoints
/// process to the AsyncEventQueue of each endpoint that uses the device. The endpoints may belong
/// to different threads.
///
/// take() adds an event to the queues before it acknowledges the event. A function such as
/// ibv_destroy_qp(3) returns only after the events of the destroyed object are acknowledged.
/// Therefore take() returns all events of a destroyed object before it returns an event of a new
/// object with the same address.
class AsyncEventQueue {
  public:
    /// @throws Error with the errno value of eventfd(2), std::bad_alloc
    explicit AsyncEventQueue(std::span<const ProtectionDomain> pds);
    AsyncEventQueue(const AsyncEventQueue&) = delete;
    AsyncEventQueue& operator=(const AsyncEventQueue&) = delete;
    ~AsyncEventQueue();

    /// Returns the devices of the endpoint that have not failed, without duplicates.
    [[nodiscard]] std::span<const Context> devices() const noexcept { return devices_; }
    /// Returns an eventfd(2) that is readable after another endpoint has added an event to this
    /// queue.
    [[nodiscard]] int descriptor() const noexcept { return added_.get(); }

    /// Reads and acknowledges all pending events of the devices, and adds each event that endpoints
    /// process to all queues that use the device.
    /// @return the events that were added to this queue since the last call, oldest first. If a
    ///         device was removed, its last event is IBV_EVENT_DEVICE_FATAL; the device is not read
    ///         again.
    [[nodiscard]] std::vector<DeviceEvent> take() noexcept;

  private:
    /// Empties `all` in a child process after fork(2): the objects belong to the parent process.
    static void forget_parent() noexcept;
    void read(const Context& device);
    void add(const ibv_context* device, const AsyncEvent& event) noexcept;

    std::vector<Context> devices_;
    std::vector<DeviceEvent> events_;
    UniqueFd added_;
    rdmabuf::detail::CreatorProcess creator_;
    Link<AsyncEventQueue> link_{};

    /// Protects `all`, and the member `events_` of each queue in this list.
    static std::mutex mutex;
    static List<AsyncEventQueue, &AsyncEventQueue::link_> all;
    static const int registered;
};

} // namespace rdmabuf::transport::detail
