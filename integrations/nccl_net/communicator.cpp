// SPDX-License-Identifier: BSD-3-Clause
#include "communicator.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <rdmabuf/error.hpp>

#include "log.hpp"

namespace nccl_net {

using rdmabuf::transport::Completion;
using rdmabuf::transport::Endpoint;
using rdmabuf::transport::Tag;

namespace {

constexpr std::size_t depth = abi::max_requests * max_receives;

/// Converts NCCL's tag, which is the number of a rank, to a tag of the transport.
Tag tag_of(int tag) noexcept {
    return static_cast<std::uint32_t>(tag);
}

const MemoryHandle& memory_of(void* handle) noexcept {
    return *static_cast<const MemoryHandle*>(handle);
}

/// Returns true if a later receive buffer of the group is in the same memory region as buffer @p i.
/// One flush of this region makes the data in both buffers visible to the GPU.
bool flushed_later(std::size_t i, std::size_t count, const int* sizes, void** memories) noexcept {
    for (std::size_t later = i + 1; later < count; ++later) {
        if (sizes[later] > 0 && memories[later] == memories[i]) {
            return true;
        }
    }
    return false;
}

/// Returns the first failed part (message or flush) of a request; nullptr if no part has failed.
/// While a part of the request is in flight, the caller must hold the lock of the endpoint.
const Request::Part* failed_part(const Request& request) noexcept {
    for (const Request::Part& part : std::span(request.parts).first(request.count)) {
        if (part.error != 0) {
            return &part;
        }
    }
    return nullptr;
}

/// Makes progress on all requests of the endpoint, also those of other communicators. Stores each
/// completion in its Request::Part. The caller must hold the lock of the endpoint.
void poll(const Endpoint& endpoint) noexcept {
    std::array<Completion, 16> completions;
    std::size_t count = completions.size();
    while (count == completions.size()) {
        count = endpoint.poll_completions(completions);
        for (const Completion& completion : std::span(completions).first(count)) {
            auto& part = *static_cast<Request::Part*>(completion.context);
            part.error = completion.error.value();
            part.size = completion.error ? part.size : completion.bytes;
            part.memory.reset();
            part.request->unfinished.fetch_sub(1, std::memory_order_release);
        }
    }
}

} // namespace

Communicator::Communicator(const Nic& nic, std::shared_ptr<SharedEndpoint> endpoint,
                           rdmabuf::transport::Channel channel) noexcept
    : nic_(nic), endpoint_(std::move(endpoint)), channel_(std::move(channel)) {
    for (Request& request : pool_) {
        request.owner = this;
        give_back(request);
    }
}

Communicator::~Communicator() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    const bool completed = std::ranges::all_of(
        pool_, [](const Request& request) { return request.unfinished.load() == 0; });
    constexpr unsigned polls = 1000;
    for (unsigned i = 0;; ++i) {
        {
            const std::lock_guard lock(endpoint_->mutex);
            const std::error_code closed = channel_.try_close(completed && endpoint_->lingers);
            // The completions of the requests contain pointers to parts of pool_, which is
            // destroyed next. Therefore poll() processes these completions now.
            poll(endpoint_->endpoint);
            if (closed.value() != EAGAIN) {
                endpoint_->lingers = endpoint_->lingers &&
                                     Clock::now() - begin < endpoint_->endpoint.options().linger;
                return;
            }
        }
        if (i < polls) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

Request* Communicator::take() noexcept {
    Request* const request = free_;
    if (request != nullptr) {
        free_ = request->next_free;
        request->count = 0;
        request->unfinished.store(0, std::memory_order_relaxed);
    }
    return request;
}

void Communicator::give_back(Request& request) noexcept {
    request.next_free = std::exchange(free_, &request);
}

Request::Part& Communicator::add_part(Request& request, const MemoryHandle& memory,
                                      std::size_t size) noexcept {
    Request::Part& part = request.parts[request.count++];
    part = {.request = &request, .memory = memory, .size = size};
    request.unfinished.fetch_add(1, std::memory_order_relaxed);
    return part;
}

void Communicator::drop_part(Request& request) noexcept {
    request.parts[--request.count].memory.reset();
    request.unfinished.fetch_sub(1, std::memory_order_relaxed);
}

abi::Result Communicator::failed(const char* what, std::size_t size, int error) noexcept {
    if (!std::exchange(failure_logged_, true)) {
        static_cast<void>(guarded(what, [&] {
            const std::string reason = channel_.reason();
            log::warn(what, nic_.name + ": " + what + " of " + std::to_string(size) +
                                " bytes: " + rdmabuf::describe_errno(error) +
                                (reason.empty() ? "" : ": " + reason));
            return abi::Result::success;
        }));
    }
    // EMSGSIZE, ERANGE and EINVAL are errors of the program: a message longer than its receive
    // buffer, an address outside the registered memory, or memory of another endpoint.
    return error == EMSGSIZE || error == ERANGE || error == EINVAL ? abi::Result::invalid_usage
                                                                   : abi::Result::system_error;
}

abi::Result Communicator::send(const MemoryHandle& memory, void* data, std::size_t size, int tag,
                               Request*& request) noexcept {
    Request* const taken = take();
    if (taken == nullptr) {
        return abi::Result::success;
    }
    Request::Part& part = add_part(*taken, memory, size);
    rdmabuf::transport::Request started;
    const std::lock_guard lock(endpoint_->mutex);
    const std::error_code error =
        channel_.isend(memory->memory(), data, size, tag_of(tag), started, &part);
    if (error) {
        drop_part(*taken);
        give_back(*taken);
        return error.value() == EAGAIN ? abi::Result::success : failed("send", size, error.value());
    }
    request = taken;
    return abi::Result::success;
}

template <class Size>
abi::Result Communicator::receive(std::size_t count, void** data, const Size* sizes,
                                  const int* tags, void** memories, Request*& request) noexcept {
    const std::lock_guard lock(endpoint_->mutex);
    // If the channel has no room for all receives of the group, no receive is posted.
    if (channel_.in_flight() + count > depth) {
        return abi::Result::success;
    }
    Request* const taken = take();
    if (taken == nullptr) {
        return abi::Result::success;
    }
    while (taken->count < count) {
        const std::size_t i = taken->count;
        const auto size = static_cast<std::size_t>(sizes[i]);
        Request::Part& part = add_part(*taken, memory_of(memories[i]), size);
        rdmabuf::transport::Request started;
        const std::error_code error =
            channel_.irecv(part.memory->memory(), data[i], size, tag_of(tags[i]), started, &part);
        if (error) {
            // After this error the communicator cannot be used. The receives of the group that are
            // already posted end when the channel is closed.
            drop_part(*taken);
            return failed("receive", size, error.value());
        }
    }
    request = taken;
    return abi::Result::success;
}
template abi::Result Communicator::receive<int>(std::size_t, void**, const int*, const int*, void**,
                                                Request*&) noexcept;
template abi::Result Communicator::receive<std::size_t>(std::size_t, void**, const std::size_t*,
                                                        const int*, void**, Request*&) noexcept;

abi::Result Communicator::start_flush(Request::Part& part) noexcept {
    rdmabuf::transport::Request started;
    const std::error_code error =
        channel_.iflush(part.memory->memory(), part.address, part.size, started, &part);
    if (!error) {
        part.waiting = false;
    }
    return !error || error.value() == EAGAIN ? abi::Result::success
                                             : failed("flush", part.size, error.value());
}

abi::Result Communicator::flush(std::size_t count, void** data, const int* sizes, void** memories,
                                Request*& request) noexcept {
    const std::lock_guard lock(endpoint_->mutex);
    Request* const taken = take();
    if (taken == nullptr) {
        // No request is free. This is an error, because success with a null request means to NCCL
        // that no flush is necessary.
        return failed("flush", 0, EAGAIN);
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (sizes[i] <= 0 || memory_of(memories[i])->memory().host() ||
            flushed_later(i, count, sizes, memories)) {
            continue;
        }
        Request::Part& part =
            add_part(*taken, memory_of(memories[i]), static_cast<std::size_t>(sizes[i]));
        part.waiting = true;
        part.address = data[i];
        if (const abi::Result result = start_flush(part); result != abi::Result::success) {
            return result;
        }
    }
    if (taken->count == 0) {
        give_back(*taken);
        return abi::Result::success;
    }
    request = taken;
    return abi::Result::success;
}

abi::Result Communicator::test(Request& request, bool& done, int* sizes) noexcept {
    const auto finished = [&] { return request.unfinished.load(std::memory_order_acquire) == 0; };
    // The completions of this request may already be stored: test() for another request polls all
    // completions of the endpoint.
    if (!finished()) {
        const std::lock_guard lock(endpoint_->mutex);
        for (Request::Part& part : std::span(request.parts).first(request.count)) {
            if (!part.waiting) {
                continue;
            }
            if (const abi::Result result = start_flush(part); result != abi::Result::success) {
                return result;
            }
        }
        poll(endpoint_->endpoint);
        if (!finished() && failed_part(request) == nullptr) {
            return abi::Result::success;
        }
    }
    if (const Request::Part* const part = failed_part(request); part != nullptr) {
        const std::lock_guard lock(endpoint_->mutex);
        return failed("request", part->size, part->error);
    }
    done = true;
    for (std::size_t i = 0; sizes != nullptr && i < request.count; ++i) {
        sizes[i] = static_cast<int>(request.parts[i].size);
    }
    give_back(request);
    return abi::Result::success;
}

} // namespace nccl_net
