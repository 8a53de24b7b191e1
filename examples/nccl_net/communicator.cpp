// SPDX-License-Identifier: BSD-3-Clause
#include "communicator.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <rdmabuf/error.hpp>

#include "log.hpp"

namespace nccl_net {

using rdmabuf::transport::Memory;
using rdmabuf::transport::Tag;

namespace {

constexpr std::size_t depth = abi::max_requests * max_receives;

/// Converts NCCL's tag, which is a rank, to a tag of the transport.
Tag tag_of(int tag) noexcept {
    return static_cast<std::uint32_t>(tag);
}

const Memory& memory_of(void* handle) noexcept {
    return *static_cast<const Memory*>(handle);
}

/// Returns true if a later part (receive buffer) of the group is in the memory region of part @p i.
/// One flush of that region makes both parts visible to the GPU.
bool flushed_later(std::size_t i, std::size_t count, const int* sizes, void** memories) noexcept {
    for (std::size_t later = i + 1; later < count; ++later) {
        if (sizes[later] > 0 && memories[later] == memories[i]) {
            return true;
        }
    }
    return false;
}

} // namespace

Communicator::Communicator(const Nic& nic, std::shared_ptr<rdmabuf::transport::Endpoint> endpoint,
                           rdmabuf::transport::Channel channel) noexcept
    : nic_(nic), endpoint_(std::move(endpoint)), channel_(std::move(channel)) {
    for (Request& request : pool_) {
        request.owner = this;
        give_back(request);
    }
}

Request* Communicator::take() noexcept {
    Request* const request = free_;
    if (request != nullptr) {
        free_ = request->next_free;
        request->count = 0;
    }
    return request;
}

void Communicator::give_back(Request& request) noexcept {
    request.next_free = std::exchange(free_, &request);
}

abi::Result Communicator::failed(const char* what, std::size_t size, int error) noexcept {
    if (!std::exchange(failure_told_, true)) {
        static_cast<void>(guarded(what, [&] {
            log::warn(what, nic_.name + ": " + what + " of " + std::to_string(size) +
                                " bytes: " + rdmabuf::describe_errno(error));
            return abi::Result::success;
        }));
    }
    // EMSGSIZE, ERANGE and EINVAL are errors of the program: a message longer than its receive
    // buffer, an address outside the registered memory, or memory of another endpoint.
    return error == EMSGSIZE || error == ERANGE || error == EINVAL ? abi::Result::invalid_usage
                                                                   : abi::Result::system_error;
}

abi::Result Communicator::send(const Memory& memory, void* data, std::size_t size, int tag,
                               Request*& request) noexcept {
    Request* const taken = take();
    if (taken == nullptr) {
        return abi::Result::success;
    }
    Request::Part& part = taken->parts[taken->count++];
    part = {.request = {}, .size = size};
    const std::error_code error = channel_.isend(memory, data, size, tag_of(tag), part.request);
    if (error) {
        give_back(*taken);
        return error.value() == EAGAIN ? abi::Result::success : failed("send", size, error.value());
    }
    request = taken;
    return abi::Result::success;
}

template <class Size>
abi::Result Communicator::receive(std::size_t count, void** data, const Size* sizes,
                                  const int* tags, void** memories, Request*& request) noexcept {
    // Either all receives of the group are posted or none, because a posted receive cannot be
    // cancelled.
    if (channel_.in_flight() + count > depth) {
        return abi::Result::success;
    }
    Request* const taken = take();
    if (taken == nullptr) {
        return abi::Result::success;
    }
    while (taken->count < count) {
        const std::size_t i = taken->count;
        Request::Part& part = taken->parts[i];
        part = {.request = {}, .size = static_cast<std::size_t>(sizes[i])};
        const std::error_code error = channel_.irecv(memory_of(memories[i]), data[i], part.size,
                                                     tag_of(tags[i]), part.request);
        if (error) {
            // After this error the communicator cannot be used. The receives of the group that are
            // already posted end when the channel is closed.
            return failed("receive", part.size, error.value());
        }
        ++taken->count;
    }
    request = taken;
    return abi::Result::success;
}
template abi::Result Communicator::receive<int>(std::size_t, void**, const int*, const int*, void**,
                                                Request*&) noexcept;
template abi::Result Communicator::receive<std::size_t>(std::size_t, void**, const std::size_t*,
                                                        const int*, void**, Request*&) noexcept;

abi::Result Communicator::begin_flush(Request::Part& part) noexcept {
    const std::error_code error =
        channel_.iflush(*part.waiting, part.address, part.size, part.request);
    if (!error) {
        part.waiting = nullptr;
    }
    return !error || error.value() == EAGAIN ? abi::Result::success
                                             : failed("flush", part.size, error.value());
}

abi::Result Communicator::flush(std::size_t count, void** data, const int* sizes, void** memories,
                                Request*& request) noexcept {
    Request* const taken = take();
    if (taken == nullptr) {
        // No request is free. This is an error, because success with a null request means to NCCL
        // that no flush is necessary.
        return failed("flush", 0, EAGAIN);
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (sizes[i] <= 0 || memory_of(memories[i]).host() ||
            flushed_later(i, count, sizes, memories)) {
            continue;
        }
        Request::Part& part = taken->parts[taken->count++];
        part = {.request = {},
                .waiting = &memory_of(memories[i]),
                .address = data[i],
                .size = static_cast<std::size_t>(sizes[i])};
        if (const abi::Result result = begin_flush(part); result != abi::Result::success) {
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
    bool all = true;
    for (std::size_t i = 0; i < request.count; ++i) {
        Request::Part& part = request.parts[i];
        if (part.waiting != nullptr) {
            if (const abi::Result result = begin_flush(part); result != abi::Result::success) {
                return result;
            }
        }
        if (!part.done && part.waiting == nullptr) {
            const auto outcome = channel_.test(part.request);
            if (outcome.done && outcome.error) {
                return failed("request", part.size, outcome.error.value());
            }
            part.done = outcome.done;
            part.size = outcome.done ? outcome.bytes : part.size;
        }
        all = all && part.done;
    }
    done = all;
    if (!all) {
        return abi::Result::success;
    }
    for (std::size_t i = 0; sizes != nullptr && i < request.count; ++i) {
        sizes[i] = static_cast<int>(request.parts[i].size);
    }
    give_back(request);
    return abi::Result::success;
}

void Communicator::close() noexcept {
    static_cast<void>(channel_.close());
}

} // namespace nccl_net
