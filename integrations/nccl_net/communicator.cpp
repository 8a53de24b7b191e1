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

/// Converts NCCL's tag, which is a rank, to a tag of the transport.
Tag tag_of(int tag) noexcept {
    return static_cast<std::uint32_t>(tag);
}

const MemoryHandle& memory_of(void* handle) noexcept {
    return *static_cast<const MemoryHandle*>(handle);
}

/// Makes progress on all requests of the endpoint, also those of other communicators. Stores each
/// completion in its Request. The caller must hold the lock of the endpoint.
void poll(const Endpoint& endpoint) noexcept {
    std::array<Completion, 16> completions;
    std::size_t count = completions.size();
    while (count == completions.size()) {
        count = endpoint.poll_completions(completions);
        for (const Completion& completion : std::span(completions).first(count)) {
            auto& part = *static_cast<Request::Part*>(completion.context);
            Request& request = *part.request;
            if (completion.error && request.error == 0) {
                request.error = completion.error.value();
            }
            part.size = completion.error ? part.size : completion.bytes;
            part.memory.reset();
            request.unfinished.fetch_sub(1, std::memory_order_release);
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
                if (closed.value() == ETIMEDOUT) {
                    endpoint_->lingers = false;
                    static_cast<void>(guarded("close", [&] {
                        log::warn("close", nic_.name +
                                               ": a connection was closed before the peer's device "
                                               "had acknowledged all messages");
                        return abi::Result::success;
                    }));
                }
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
        request->error = 0;
    }
    return request;
}

void Communicator::give_back(Request& request) noexcept {
    request.next_free = std::exchange(free_, &request);
}

template <class Start>
std::error_code Communicator::add_part(Request& request, const MemoryHandle& memory,
                                       std::size_t size, const Start& start) noexcept {
    Request::Part& part = request.parts[request.count];
    part = {.request = &request, .memory = memory, .size = size};
    const std::error_code error = start(part);
    if (error) {
        part.memory.reset();
    } else {
        ++request.count;
        request.unfinished.fetch_add(1, std::memory_order_relaxed);
    }
    return error;
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
    return log::result_of(error);
}

abi::Result Communicator::send(const MemoryHandle& memory, void* data, std::size_t size, int tag,
                               void*& request) noexcept {
    const std::lock_guard lock(endpoint_->mutex);
    // A message without data needs no receive buffer, so it does not wait for an advertised
    // receive.
    if (size > 0) {
        auto receive = channel_.advertised_receive(tag_of(tag));
        if (!receive) {
            poll(endpoint_->endpoint);
            receive = channel_.advertised_receive(tag_of(tag));
        }
        if (!receive && !channel_.state()) {
            return abi::Result::success;
        }
        size = std::min(size, static_cast<std::size_t>(receive.value_or(size)));
    }
    Request* const taken = take();
    if (taken == nullptr) {
        return abi::Result::success;
    }
    const std::error_code error = add_part(*taken, memory, size, [&](Request::Part& part) {
        rdmabuf::transport::Request started;
        return channel_.isend(part.memory->memory(), data, size, tag_of(tag), started, &part);
    });
    if (error) {
        give_back(*taken);
        return failed("send", size, error.value());
    }
    request = taken;
    return abi::Result::success;
}

abi::Result Communicator::receive(std::size_t count, void** data, const std::size_t* sizes,
                                  const int* tags, void** memories, void*& request) noexcept {
    const auto ready = [&] {
        return std::ranges::all_of(std::span(tags, count), [&](int tag) {
            return channel_.can_advertise(tag_of(tag), count);
        });
    };
    const std::lock_guard lock(endpoint_->mutex);
    if (!ready()) {
        poll(endpoint_->endpoint);
        if (!ready() && !channel_.state()) {
            return abi::Result::success;
        }
    }
    Request* const taken = take();
    if (taken == nullptr) {
        return abi::Result::success;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const std::error_code error =
            add_part(*taken, memory_of(memories[i]), sizes[i], [&](Request::Part& part) {
                rdmabuf::transport::Request started;
                return channel_.irecv(part.memory->memory(), data[i], sizes[i], tag_of(tags[i]),
                                      started, &part);
            });
        if (error) {
            // After this error the communicator cannot be used. The receives of the group that are
            // already posted end when the channel is closed.
            return failed("receive", sizes[i], error.value());
        }
    }
    request = taken;
    return abi::Result::success;
}

abi::Result Communicator::flush(std::size_t count, void** data, const int* sizes, void** memories,
                                void*& request) noexcept {
    std::size_t last = count;
    for (std::size_t i = 0; i < count; ++i) {
        if (sizes[i] > 0 && !memory_of(memories[i])->memory().host()) {
            last = i;
        }
    }
    if (last == count) {
        return abi::Result::success;
    }
    const auto size = static_cast<std::size_t>(sizes[last]);
    const std::lock_guard lock(endpoint_->mutex);
    Request* const taken = take();
    // If no request is free, flush() must fail: success with a null request means to NCCL that no
    // flush is necessary.
    const std::error_code error =
        taken == nullptr
            ? std::error_code(EAGAIN, std::system_category())
            : add_part(*taken, memory_of(memories[last]), size, [&](Request::Part& part) {
                  rdmabuf::transport::Request started;
                  return channel_.iflush(part.memory->memory(), data[last], size, started, &part);
              });
    if (error) {
        return failed("flush", size, error.value());
    }
    request = taken;
    return abi::Result::success;
}

abi::Result Communicator::test(Request& request, int& done, int* sizes) noexcept {
    const auto finished = [&] { return request.unfinished.load(std::memory_order_acquire) == 0; };
    // The completions of this request may already be stored: test() for another request polls all
    // completions of the endpoint.
    if (!finished()) {
        const std::lock_guard lock(endpoint_->mutex);
        poll(endpoint_->endpoint);
        if (!finished()) {
            return abi::Result::success;
        }
    }
    if (request.error != 0) {
        const std::lock_guard lock(endpoint_->mutex);
        return failed("request", request.parts.front().size, request.error);
    }
    done = 1;
    for (std::size_t i = 0; sizes != nullptr && i < request.count; ++i) {
        sizes[i] = static_cast<int>(request.parts[i].size);
    }
    give_back(request);
    return abi::Result::success;
}

} // namespace nccl_net
