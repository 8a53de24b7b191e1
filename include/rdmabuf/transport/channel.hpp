// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/engine.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/remote_memory.hpp>
#include <rdmabuf/transport/request.hpp>

namespace rdmabuf::transport {

/// A connection to one peer, for messages in both directions and for one-sided operations (RDMA
/// writes and reads). A channel can be moved but not copied. Only one thread at a time may use a
/// channel; different channels are independent of each other.
///
/// **Messages.** A message matches the first posted receive with the same tag. Messages with the
/// same tag arrive in the order in which they were sent. A receive may be posted before or after
/// its message arrives. At most EndpointOptions::eager_slots messages wait at the receiver for a
/// matching receive; all further messages wait at the sender, whatever their tag.
///
/// **Requests.** isend(), irecv(), iput(), iput_notify(), iget() and iflush() start a request.
/// test(), wait() or wait_any() report its completion, in any order of the requests. Before its
/// completion is reported, the program must not reuse or free the memory of the request. A channel
/// makes progress only inside its calls: while requests are in flight, also those of the peer, the
/// program has to call test(), wait() or progress() regularly.
///
/// Errors of the calls that start a request:
///   - EAGAIN: EndpointOptions::depth requests are in flight; test some of them and call again
///   - EINVAL: the Memory is empty or belongs to another endpoint; or the RemoteMemory is empty or
///     has regions for fewer devices than the channel uses
///   - ERANGE: the range is not inside the Memory, or not inside the RemoteMemory
///   - EACCES: the Memory or the RemoteMemory was not registered with the required access
///   - EBADF: the channel is closed
///   - the error of state(), if the channel has failed
///
/// Errors with which a request ends (Outcome::error):
///   - EMSGSIZE: the message is longer than the receive buffer; Outcome::bytes of the receive is
///     the length of the message. A message above the eager limit fails at both ends, an eager
///     message only at the receiver. The channel remains usable.
///   - ETIMEDOUT: the request took longer than EndpointOptions::timeout
///   - EFAULT: this side's device could not access this side's memory: it was revoked or unmapped
///   - EACCES: the peer's device rejected the access: the peer's memory was deregistered or revoked
///   - ECONNRESET: the peer closed the channel, or its process ended
///   - EHOSTUNREACH: the peer's device does not respond: a cable, a switch or the machine failed
///   - EPROTO: the peer violated the protocol
///   - ECONNABORTED: another request failed with ETIMEDOUT, EFAULT or EACCES, which ended the
///     channel
///   - EIO: the device of this side failed
/// Every error except EMSGSIZE ends the channel and all its requests in flight.
class Channel {
  public:
    Channel(Channel&&) noexcept = default;
    Channel& operator=(Channel&& other) noexcept {
        static_cast<void>(close());
        endpoint_ = std::move(other.endpoint_);
        engine_ = std::move(other.engine_);
        creator_ = other.creator_;
        return *this;
    }
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    ~Channel() { static_cast<void>(close()); }

    /// Sends a message of @p length bytes. Messages of 0 bytes are allowed. The request completes
    /// when its memory may be reused, possibly before the message arrives at the peer.
    [[nodiscard]] std::error_code isend(const Memory& memory, const void* address,
                                        std::size_t length, Tag tag, Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.send(piece(memory, address, length), tag, request);
        });
    }
    /// Receives a message of up to @p length bytes. The memory must be registered with
    /// Access::local_write and Access::remote_write. The request completes when the data has
    /// arrived. GPU memory may need iflush() before GPU kernels read the data.
    [[nodiscard]] std::error_code irecv(const Memory& memory, void* address, std::size_t length,
                                        Tag tag, Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.receive(piece(memory, address, length), tag, request);
        });
    }

    /// Writes @p length bytes to the peer's memory (RDMA write), @p offset bytes behind the
    /// beginning of this memory. The request completes when the peer's device has acknowledged the
    /// data. The peer is not notified.
    [[nodiscard]] std::error_code iput(const Memory& memory, const void* address,
                                       std::size_t length, const RemoteMemory& remote,
                                       std::uint64_t offset, Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.put(piece(memory, address, length), remote, offset, nullptr, request);
        });
    }
    /// Writes as iput() does. After the data has arrived, the peer's notification() returns
    /// @p value.
    [[nodiscard]] std::error_code iput_notify(const Memory& memory, const void* address,
                                              std::size_t length, const RemoteMemory& remote,
                                              std::uint64_t offset, std::uint64_t value,
                                              Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.put(piece(memory, address, length), remote, offset, &value, request);
        });
    }
    /// Reads @p length bytes of the peer's memory (RDMA read). The first byte is at @p offset in
    /// that memory. The local memory must be registered with Access::local_write.
    [[nodiscard]] std::error_code iget(const Memory& memory, void* address, std::size_t length,
                                       const RemoteMemory& remote, std::uint64_t offset,
                                       Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.get(piece(memory, address, length), remote, offset, request);
        });
    }
    /// Makes data that the channel's devices wrote to GPU memory visible to the GPU: each device
    /// reads one byte of the memory. The memory must be registered with Access::remote_read. The
    /// call has no effect on host memory.
    /// @return also EAGAIN, if the loopback queue pair is full: it holds up to 64 work requests
    [[nodiscard]] std::error_code iflush(const Memory& memory, const void* address,
                                         std::size_t length, Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.flush(piece(memory, address, length), request);
        });
    }

    /// Returns the value of the oldest iput_notify() of the peer whose value was not returned yet;
    /// std::nullopt if there is no such value.
    [[nodiscard]] std::optional<std::uint64_t> notification() noexcept {
        std::uint64_t value = 0;
        return engine_ && engine_->notification(value) ? std::optional(value) : std::nullopt;
    }

    /// Makes progress and returns the state of @p request. The completion of a request is reported
    /// only once. For an invalid request, Outcome::done is true and Outcome::error is set: ESTALE
    /// if the completion was reported before, EINVAL for a request of another channel, EBADF after
    /// close().
    [[nodiscard]] Outcome test(const Request& request) noexcept {
        Outcome outcome;
        if (const int error = engine_ ? engine_->test(request, outcome) : EBADF; error != 0) {
            return {.done = true, .error = {error, std::system_category()}};
        }
        return outcome;
    }
    /// Tests @p request until the request is done or @p timeout is over.
    /// @param timeout  wait_forever for no time limit
    /// @return the Outcome of the request. If the time is over, Outcome::done is false and wait()
    ///         may be called again.
    [[nodiscard]] Outcome wait(const Request& request, std::chrono::milliseconds timeout) noexcept {
        detail::SpinWait spin(timeout);
        for (;;) {
            const Outcome outcome = test(request);
            if (outcome.done || !spin.wait()) {
                return outcome;
            }
        }
    }
    /// Makes progress on all requests in flight.
    void progress() noexcept {
        if (engine_) {
            engine_->progress();
        }
    }

    /// Returns the error that prevents new requests: EBADF after close(), no error while the
    /// channel works.
    [[nodiscard]] std::error_code state() const noexcept {
        return {engine_ ? engine_->broken() : EBADF, std::system_category()};
    }
    /// Returns the number of requests that were started and whose completion was not reported yet.
    [[nodiscard]] std::size_t in_flight() const noexcept {
        return engine_ ? engine_->in_flight() : 0;
    }
    /// Returns the number of devices over which long messages are striped; 0 after close().
    [[nodiscard]] std::size_t rails() const noexcept { return engine_ ? engine_->rails() : 0; }

    /// Closes the channel. Waits until queued messages are sent and acknowledged, for at most
    /// EndpointOptions::linger. Cancels the other requests, for example a message that waits for a
    /// receive of the peer.
    /// @return the error of state() before the channel was closed
    std::error_code close() noexcept {
        if (!engine_) {
            return {};
        }
        std::error_code state = this->state();
        // In a child process after fork(2), close() sends nothing: the queue pairs belong to the
        // parent process.
        if (creator_.is_current()) {
            engine_->drain();
            state = this->state();
            engine_->fail(EBADF);
        }
        engine_.reset();
        endpoint_.reset();
        return state;
    }

    // Only Listener and Connector call this constructor.
    Channel(std::shared_ptr<detail::EndpointState> endpoint,
            std::unique_ptr<detail::Engine> engine) noexcept
        : endpoint_(std::move(endpoint)), engine_(std::move(engine)) {}

  private:
    [[nodiscard]] static detail::Piece piece(const Memory& memory, const void* address,
                                             std::size_t length) noexcept {
        return {.memory = memory.state(),
                .address = reinterpret_cast<std::uintptr_t>(address),
                .length = length};
    }
    template <class Begin>
    [[nodiscard]] std::error_code begin(const Begin& call) noexcept {
        return {engine_ ? call(*engine_) : EBADF, std::system_category()};
    }

    std::shared_ptr<detail::EndpointState> endpoint_;
    std::unique_ptr<detail::Engine> engine_;
    rdmabuf::detail::CreatorProcess creator_;
};

/// A request together with its channel, for wait_any().
struct Pending {
    Channel* channel = nullptr;
    Request request = {};
};

/// Tests requests, which may belong to different channels, until one of them is done.
/// @param outcome  receives the Outcome of the request that is done
/// @param timeout  wait_forever for no time limit
/// @return the index of the request that is done; requests.size() if the time is over or
///         @p requests is empty
[[nodiscard]] inline std::size_t wait_any(std::span<const Pending> requests, Outcome& outcome,
                                          std::chrono::milliseconds timeout) noexcept {
    detail::SpinWait spin(timeout);
    while (!requests.empty()) {
        for (std::size_t i = 0; i < requests.size(); ++i) {
            outcome = requests[i].channel->test(requests[i].request);
            if (outcome.done) {
                return i;
            }
        }
        if (!spin.wait()) {
            break;
        }
    }
    return requests.size();
}

} // namespace rdmabuf::transport
