// SPDX-License-Identifier: BSD-3-Clause
#include "objects/device.hpp"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>

#include "fabric/no_cancellation.hpp"
#include "objects/process.hpp"

namespace softverbs {

EventDescriptor::~EventDescriptor() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

int EventDescriptor::open() noexcept {
    fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    return fd_ < 0 ? errno : 0;
}

void EventDescriptor::raise() noexcept {
    const std::uint64_t one = 1;
    // write(2) fails only when the counter has reached 2^64 - 2 events. It is called through
    // syscall(2), which is not a cancellation point, since a verb that completes something is none.
    static_cast<void>(::syscall(SYS_write, fd_, &one, sizeof one));
}

int EventDescriptor::take() const {
    std::uint64_t one = 0;
    return ::read(fd_, &one, sizeof one) == sizeof one ? 0 : errno;
}

void EventDescriptor::retract() const noexcept {
    // A thread in take() may read the event first, and a plain read(2) would then block. If the
    // kernel does not support RWF_NOWAIT, the counter stays too high; the thread that reads it then
    // finds an empty event queue and waits again.
    std::uint64_t value = 0;
    const iovec buffer{&value, sizeof value};
    const fabric::NoCancellation here;
    [[maybe_unused]] const ssize_t read = preadv2(fd_, &buffer, 1, -1, RWF_NOWAIT);
}

Device* ours(ibv_device* device) noexcept {
    for (const auto& known : process().devices) {
        if (known.get() == device) {
            return known.get();
        }
    }
    return nullptr;
}

Context* ours(ibv_context* context) noexcept {
    return context != nullptr && ours(context->device) != nullptr ? &context_of(context) : nullptr;
}

void raise_event(Context& context, const ibv_async_event& event) {
    context.async_events.push_back(event);
    context.async.raise();
}

} // namespace softverbs
