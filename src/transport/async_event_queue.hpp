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

/// An asynchronous event and the device that has raised it.
struct DeviceEvent {
    const ibv_context* device = nullptr;
    AsyncEvent event{};
};

/// The asynchronous events of the devices of one endpoint.
///
/// A device returns each event to one reader only, but several endpoints of the process may use the
/// same ibv_context. Therefore take() adds each event that it reads to the queues of all these
/// endpoints. The endpoints may belong to different threads.
///
/// An event is added to the queues before it is acknowledged, and a function that destroys the
/// object of the event returns after the acknowledgement. Therefore take() returns all events of a
/// destroyed object before it returns an event of a new object with the same address.
class AsyncEventQueue {
  public:
    /// @throws Error with the errno value of eventfd(2), std::bad_alloc
    explicit AsyncEventQueue(std::span<const ProtectionDomain> pds);
    AsyncEventQueue(const AsyncEventQueue&) = delete;
    AsyncEventQueue& operator=(const AsyncEventQueue&) = delete;
    ~AsyncEventQueue();

    /// Returns the devices, each once.
    [[nodiscard]] std::span<const Context> devices() const noexcept { return devices_; }
    /// Returns the descriptor that is readable after another endpoint has added an event to this
    /// queue.
    [[nodiscard]] int descriptor() const noexcept { return added_.get(); }

    /// Reads and acknowledges all events that the devices have raised.
    /// @return the events since the last call, oldest first. If the events of a device cannot be
    ///         read any more, because the device was removed, the last event of this device is
    ///         IBV_EVENT_DEVICE_FATAL.
    [[nodiscard]] std::vector<DeviceEvent> take() noexcept;

  private:
    void read(const Context& device);
    void add(const ibv_context* device, const AsyncEvent& event) noexcept;

    std::vector<Context> devices_;
    std::vector<DeviceEvent> events_;
    UniqueFd added_;
    rdmabuf::detail::CreatorProcess creator_;
    Link<AsyncEventQueue> link_{};

    /// Protects the list of all queues of the process, and the events of these queues.
    static std::mutex mutex;
    static List<AsyncEventQueue, &AsyncEventQueue::link_> all;
};

} // namespace rdmabuf::transport::detail
