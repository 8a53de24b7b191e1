// SPDX-License-Identifier: BSD-3-Clause
#include "communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
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

/// The registration may outlive the connection for which NCCL has requested it; all connections of
/// the same endpoint can use it, so it keeps the endpoint open.
struct RegisteredMemory {
    std::shared_ptr<SharedEndpoint> endpoint;
    rdmabuf::transport::Memory memory;
};

namespace {

using rdmabuf::transport::Channel;
using rdmabuf::transport::Completion;
using rdmabuf::transport::Endpoint;
using rdmabuf::transport::Memory;
using rdmabuf::transport::Tag;

/// An `mhandle` of NCCL is a pointer to an object of this type. The MemoryHandle is shared by the
/// calls of regMr() for the same memory. It is destroyed by the last deregMr(), also if requests
/// still use the memory: NCCL may then free the memory, and register other memory at its address.
using Registration = std::shared_ptr<const MemoryHandle>;

const MemoryHandle& memory_of(void* handle) noexcept {
    return **static_cast<const Registration*>(handle);
}

struct Communicator;

/// A request of NCCL: one send, a grouped receive of up to max_receives messages, or one flush.
struct Request {
    /// One message, or a flush. The `context` of the transport request points to this object.
    struct Part {
        Request* request = nullptr;
        /// Keeps the memory registered until the part has completed.
        MemoryHandle memory = nullptr;
        std::size_t size = 0;
    };

    Communicator* owner = nullptr;
    Request* next_free = nullptr;
    std::size_t count = 0;
    /// The errno value of the first part that failed; 0 if none has failed.
    int error = 0;
    /// The number of parts that have not completed. Any thread that polls the endpoint may decrease
    /// this number.
    std::atomic<std::uint32_t> unfinished{0};
    std::array<Part, max_receives> parts;
};

/// The number of communicators that NCCL has not closed.
std::atomic<unsigned> open_communicators = 0;

struct Communicator {
    Communicator(const Nic& of, std::shared_ptr<SharedEndpoint> through, Channel made) noexcept
        : nic(of), endpoint(std::move(through)), channel(std::move(made)) {
        for (Request& request : pool) {
            request.owner = this;
            give_back(request);
        }
        ++open_communicators;
    }
    ~Communicator() { --open_communicators; }
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// Returns nullptr if all requests are in use.
    [[nodiscard]] Request* take() noexcept {
        Request* const request = free;
        if (request != nullptr) {
            free = request->next_free;
            request->count = 0;
            request->error = 0;
        }
        return request;
    }
    void give_back(Request& request) noexcept { request.next_free = std::exchange(free, &request); }
    /// Logs an error, but only the first one of this communicator. The caller must hold the lock of
    /// the endpoint.
    /// @return the result for NCCL
    [[nodiscard]] abi::Result failed(const char* what, std::size_t size, int error) noexcept {
        if (!std::exchange(failure_logged, true)) {
            static_cast<void>(guarded(what, [&] {
                const std::string reason = channel.reason();
                log::warn(what, nic.name + ": " + what + " of " + std::to_string(size) +
                                    " bytes: " + rdmabuf::describe_errno(error) +
                                    (reason.empty() ? "" : ": " + reason));
                return abi::Result::success;
            }));
        }
        return log::result_of(error);
    }

    const Nic& nic;
    std::shared_ptr<SharedEndpoint> endpoint;
    Channel channel;
    std::array<Request, max_operations> pool;
    Request* free = nullptr;
    bool failure_logged = false;
};

Communicator& communicator(void* comm) noexcept {
    return *static_cast<Communicator*>(comm);
}

/// Converts NCCL's tag, which is a rank, to a tag of the transport.
Tag tag_of(int tag) noexcept {
    return static_cast<std::uint32_t>(tag);
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

/// Starts one part of @p request by a call of @p start, which takes the memory, a transport request
/// and a context, and returns an error code. If the call fails, the part is removed from the
/// request.
template <class Start>
std::error_code add_part(Request& request, void* memory, std::size_t size,
                         const Start& start) noexcept {
    Request::Part& part = request.parts[request.count];
    part = {.request = &request, .memory = memory_of(memory), .size = size};
    rdmabuf::transport::Request started;
    const std::error_code error = start(part.memory->memory, started, &part);
    if (error) {
        part.memory.reset();
    } else {
        ++request.count;
        request.unfinished.fetch_add(1, std::memory_order_relaxed);
    }
    return error;
}

/// Shares the registration of the same memory, or makes a new one. If two threads register the same
/// memory at the same time, there are two registrations.
/// @param call  registers the memory with an endpoint, whose lock is held, except while the devices
///              register the memory
template <class Register>
abi::Result registered(const char* function, void* comm, const MemoryKey& key, void** memory,
                       const Register& call) noexcept {
    *memory = nullptr;
    return guarded(function, [&] {
        const Communicator& of = communicator(comm);
        auto made = rdmabuf::attempt([&] {
            Registration result;
            const std::lock_guard lock(of.endpoint->mutex);
            auto& known = of.endpoint->registrations;
            std::erase_if(known, [](const auto& each) { return each.second.expired(); });
            if (const auto same = known.find(key); same != known.end()) {
                result = same->second.lock();
            }
            if (result == nullptr) {
                Memory registered = call(of.endpoint->endpoint, of.nic.access).value();
                // remote() fails if the memory has more regions than a descriptor can hold. A
                // receive into such memory would never be advertised.
                static_cast<void>(registered.remote().value());
                result = std::make_shared<MemoryHandle>(std::make_shared<RegisteredMemory>(
                    RegisteredMemory{.endpoint = of.endpoint, .memory = std::move(registered)}));
                known[key] = result;
            }
            return std::make_unique<Registration>(result);
        });
        if (!made) {
            return log::failed(function, of.nic.name, made.error_info());
        }
        *memory = made->release();
        return abi::Result::success;
    });
}

} // namespace

void* make_communicator(const Nic& nic, std::shared_ptr<SharedEndpoint> endpoint, Channel channel) {
    return new Communicator(nic, std::move(endpoint), std::move(channel));
}

abi::Result close_communicator(void* comm) noexcept {
    const std::unique_ptr<Communicator> closed(&communicator(comm));
    SharedEndpoint& shared = *closed->endpoint;
    const bool completed = std::ranges::all_of(
        closed->pool, [](const Request& request) { return request.unfinished.load() == 0; });
    const auto try_close = [&] {
        const std::lock_guard lock(shared.mutex);
        const std::error_code error = closed->channel.try_close(completed && shared.lingers);
        // The completions of the requests contain pointers to parts of the pool, which is destroyed
        // next. Therefore poll() processes these completions now.
        poll(shared.endpoint);
        shared.lingers = shared.lingers && error.value() != ETIMEDOUT;
        return error.value();
    };
    constexpr unsigned polls = 1000;
    int error = try_close();
    for (unsigned i = 0; error == EAGAIN; error = try_close()) {
        if (i++ < polls) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return guarded("close", [&] {
        if (error == ETIMEDOUT) {
            log::warn("close", closed->nic.name +
                                   ": a connection was closed before the peer's device had "
                                   "acknowledged all messages");
        }
        return abi::Result::success;
    });
}

bool are_communicators_closed() noexcept {
    return open_communicators == 0;
}

abi::Result register_memory(void* comm, void* data, std::size_t size, int /*kind*/,
                            void** memory) noexcept {
    return registered("regMr", comm, {.address = data, .size = size}, memory,
                      [&](const Endpoint& endpoint, rdmabuf::Access access) {
                          return endpoint.register_uncached(data, size, access);
                      });
}

abi::Result register_dmabuf(void* comm, void* data, std::size_t size, int /*kind*/,
                            std::uint64_t offset, int fd, void** memory) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    return registered(
        "regMrDmaBuf", comm, {.address = data, .size = size, .offset = offset}, memory,
        [&](const Endpoint& endpoint, rdmabuf::Access access) -> rdmabuf::Result<Memory> {
            const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
            if (address % page != offset % page) {
                return rdmabuf::ErrorInfo(EINVAL, "",
                                          "the address and the offset in the dma-buf have "
                                          "different offsets in their pages");
            }
            return endpoint.register_dmabuf(fd, offset, size, address, access);
        });
}

abi::Result deregister_memory(void* /*comm*/, void* memory) noexcept {
    delete static_cast<Registration*>(memory);
    return abi::Result::success;
}

abi::Result isend(void* comm, void* data, std::size_t size, int tag, void* memory,
                  void** request) noexcept {
    *request = nullptr;
    Communicator& by = communicator(comm);
    const std::lock_guard lock(by.endpoint->mutex);
    // A message without data waits for an advertised receive, too. Otherwise it would be sent as an
    // eager message, whose send completes before the peer's device has acknowledged it, and NCCL
    // could close the connection before the message has arrived.
    auto receive = by.channel.advertised_receive(tag_of(tag));
    if (!receive) {
        poll(by.endpoint->endpoint);
        receive = by.channel.advertised_receive(tag_of(tag));
    }
    if (!receive && !by.channel.state()) {
        return abi::Result::success;
    }
    size = std::min(size, static_cast<std::size_t>(receive.value_or(size)));
    Request* const taken = by.take();
    if (taken == nullptr) {
        return abi::Result::success;
    }
    const std::error_code error =
        add_part(*taken, memory, size, [&](const Memory& from, auto& started, void* context) {
            return by.channel.isend(from, data, size, tag_of(tag), started, context);
        });
    if (error) {
        by.give_back(*taken);
        return by.failed("send", size, error.value());
    }
    *request = taken;
    return abi::Result::success;
}

abi::Result irecv(void* comm, std::size_t count, void** data, const std::size_t* sizes,
                  const int* tags, void** memories, void** request) noexcept {
    *request = nullptr;
    Communicator& by = communicator(comm);
    const auto ready = [&] {
        return std::ranges::all_of(std::span(tags, count), [&](int tag) {
            return by.channel.can_advertise(tag_of(tag), count);
        });
    };
    const std::lock_guard lock(by.endpoint->mutex);
    if (!ready()) {
        poll(by.endpoint->endpoint);
        if (!ready() && !by.channel.state()) {
            return abi::Result::success;
        }
    }
    Request* const taken = by.take();
    if (taken == nullptr) {
        return abi::Result::success;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const std::error_code error = add_part(
            *taken, memories[i], sizes[i], [&](const Memory& to, auto& started, void* context) {
                return by.channel.irecv(to, data[i], sizes[i], tag_of(tags[i]), started, context);
            });
        if (error) {
            // After this error the communicator cannot be used. The receives of the group that are
            // already posted end when the channel is closed.
            return by.failed("receive", sizes[i], error.value());
        }
    }
    *request = taken;
    return abi::Result::success;
}

// NOLINTNEXTLINE(readability-non-const-parameter): these are NCCL's parameters
abi::Result iflush(void* comm, int count, void** data, int* sizes, void** memories,
                   void** request) noexcept {
    *request = nullptr;
    int last = -1;
    for (int i = 0; i < count; ++i) {
        if (sizes[i] > 0 && !memory_of(memories[i])->memory.host()) {
            last = i;
        }
    }
    if (last < 0) {
        return abi::Result::success;
    }
    const auto size = static_cast<std::size_t>(sizes[last]);
    Communicator& by = communicator(comm);
    const std::lock_guard lock(by.endpoint->mutex);
    Request* const taken = by.take();
    // If no request is free, flush() must fail: success with a null request means to NCCL that no
    // flush is necessary.
    const std::error_code error =
        taken == nullptr
            ? std::error_code(EAGAIN, std::system_category())
            : add_part(*taken, memories[last], size,
                       [&](const Memory& memory, auto& started, void* context) {
                           return by.channel.iflush(memory, data[last], size, started, context);
                       });
    if (error) {
        return by.failed("flush", size, error.value());
    }
    *request = taken;
    return abi::Result::success;
}

abi::Result test(void* request, int* done, int* sizes) noexcept {
    *done = 0;
    auto& tested = *static_cast<Request*>(request);
    Communicator& by = *tested.owner;
    const auto finished = [&] { return tested.unfinished.load(std::memory_order_acquire) == 0; };
    // The completions of this request may already be stored: test() for another request polls all
    // completions of the endpoint.
    if (!finished()) {
        const std::lock_guard lock(by.endpoint->mutex);
        poll(by.endpoint->endpoint);
        if (!finished()) {
            return abi::Result::success;
        }
    }
    if (tested.error != 0) {
        const std::lock_guard lock(by.endpoint->mutex);
        return by.failed("request", tested.parts.front().size, tested.error);
    }
    *done = 1;
    for (std::size_t i = 0; sizes != nullptr && i < tested.count; ++i) {
        sizes[i] = static_cast<int>(tested.parts[i].size);
    }
    by.give_back(tested);
    return abi::Result::success;
}

} // namespace nccl_net
