// SPDX-License-Identifier: BSD-3-Clause
#include "transport/async_event_queue.hpp"

#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::transport::detail {

constinit std::mutex AsyncEventQueue::mutex;
constinit List<AsyncEventQueue, &AsyncEventQueue::link_> AsyncEventQueue::all;

namespace {

/// Returns true if EndpointState::async_event() processes events of this type. Events of other
/// types are not stored: while an endpoint makes no progress, nobody removes events from its queue,
/// so only events that are needed may occupy memory.
bool is_processed(ibv_event_type type) noexcept {
    switch (type) {
        case IBV_EVENT_DEVICE_FATAL:
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
        case IBV_EVENT_PORT_ERR:
        case IBV_EVENT_PORT_ACTIVE:
            return true;
        default:
            return false;
    }
}

} // namespace

void AsyncEventQueue::forget_parent() noexcept {
    // Another thread of the parent process may have held the lock during fork(2), so create the
    // mutex again.
    ::new (static_cast<void*>(&mutex)) std::mutex;
    all.clear();
}

/// Initialized when the library is loaded. fork(2) then calls forget_parent() in the child process.
[[maybe_unused]] const int AsyncEventQueue::registered =
    ::pthread_atfork(nullptr, nullptr, [] { forget_parent(); });

AsyncEventQueue::AsyncEventQueue(std::span<const ProtectionDomain> pds)
    : added_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    rdmabuf::detail::check_zero(added_ ? 0 : errno, "eventfd");
    for (const ProtectionDomain& pd : pds) {
        if (std::ranges::find(devices_, pd.context()) == devices_.end()) {
            devices_.push_back(pd.context());
        }
    }
    const std::lock_guard lock(mutex);
    all.push_back(this);
}

AsyncEventQueue::~AsyncEventQueue() {
    // In a child process after fork(2), the list does not contain the objects of the parent.
    if (creator_.is_current()) {
        const std::lock_guard lock(mutex);
        all.remove(this);
    }
}

std::vector<DeviceEvent> AsyncEventQueue::take() noexcept {
    const std::lock_guard lock(mutex);
    for (const Context& device : devices_) {
        // Errors are ignored. If memory is exhausted, the event remains in the descriptor of the
        // device, and the next call of take() reads it.
        static_cast<void>(attempt([&] { read(device); }));
    }
    eventfd_t ignored = 0;
    static_cast<void>(::eventfd_read(added_.get(), &ignored));
    // If a device was removed, each attempt to read its events fails, and read() adds
    // IBV_EVENT_DEVICE_FATAL to all queues for each failure. Therefore the events of a failed
    // device are not read again.
    for (const DeviceEvent& event : events_) {
        if (event.event.type == IBV_EVENT_DEVICE_FATAL) {
            std::erase_if(devices_, [&event](const Context& device) noexcept {
                return device.native() == event.device;
            });
        }
    }
    return std::exchange(events_, {});
}

void AsyncEventQueue::read(const Context& device) {
    for (bool more = true; more;) {
        for (AsyncEventQueue& queue : all) {
            if (queue.events_.size() == queue.events_.capacity()) {
                queue.events_.reserve(2 * queue.events_.size() + 8);
            }
        }
        const auto event = attempt([&] { return device.get_async_event(); });
        more = event && event->has_value();
        if (more) {
            add(device.native(), (*event)->event());
        } else if (!event && event.error() != ENOMEM) {
            add(device.native(), AsyncEvent{.type = IBV_EVENT_DEVICE_FATAL});
        }
    }
}

void AsyncEventQueue::add(const ibv_context* device, const AsyncEvent& event) noexcept {
    if (!is_processed(event.type)) {
        return;
    }
    for (AsyncEventQueue& queue : all) {
        const bool uses_device = std::ranges::any_of(
            queue.devices_,
            [device](const Context& context) noexcept { return context.native() == device; });
        if (!uses_device) {
            continue;
        }
        queue.events_.push_back({.device = device, .event = event}); // read() has reserved memory.
        if (&queue != this) {
            static_cast<void>(::eventfd_write(queue.added_.get(), 1));
        }
    }
}

} // namespace rdmabuf::transport::detail
