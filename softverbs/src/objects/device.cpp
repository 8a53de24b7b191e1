// SPDX-License-Identifier: BSD-3-Clause
#include "objects/device.hpp"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>

#include "fabric/uncancellable.hpp"
#include "objects/process.hpp"

namespace softverbs {

int EventDescriptor::open() noexcept {
    fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
    return fd_ ? 0 : errno;
}

void EventDescriptor::raise() noexcept {
    fabric::signal_eventfd(fd_.get());
}

int EventDescriptor::take() const {
    std::uint64_t one = 0;
    return ::read(fd_.get(), &one, sizeof one) == sizeof one ? 0 : errno;
}

void EventDescriptor::retract() const noexcept {
    // Decrement the counter of the eventfd. With RWF_NOWAIT, the read does not block if another
    // thread in EventDescriptor::take() reads the counter first. If the kernel does not support
    // RWF_NOWAIT, this read fails and the counter stays one too high. A thread that then reads the
    // counter finds no event and waits again.
    std::uint64_t value = 0;
    const iovec buffer{&value, sizeof value};
    const fabric::NoCancellation here;
    [[maybe_unused]] const ssize_t read = preadv2(fd_.get(), &buffer, 1, -1, RWF_NOWAIT);
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
