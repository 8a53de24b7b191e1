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

#include <rdmabuf/detail/fork.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/engine.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/remote_memory.hpp>
#include <rdmabuf/transport/request.hpp>

namespace rdmabuf::transport {

/// A connection to one peer, for messages both ways and for one-sided operations. Moves only. One
/// thread at a time uses a channel; different channels have nothing in common.
///
/// **Messages.** A message goes to the first receive of its tag, and messages of one tag arrive in
/// the order in which they were sent. Receives and messages may come in any order; messages beyond
/// EndpointOptions::eager_slots that nobody has asked for wait at the sender, with all behind them.
///
/// **Requests** begin with an i... call and end in test(), wait() or wait_any(), in any order.
/// Until then the memory belongs to the request. Nothing goes on between calls: a channel with
/// requests has to be tested, also for the peer's sake.
///
/// What an i... call returns, besides no error:
///   - EAGAIN: as many requests are in flight as EndpointOptions::depth says; test some, try again
///   - EINVAL: memory of another endpoint, or none; an empty RemoteMemory
///   - ERANGE: not inside the memory, or not inside the remote memory
///   - EACCES: the memory, or the remote memory, was not registered for that
///   - EBADF: the channel is closed; otherwise, if it is broken, why: see state()
///
/// How a request ends, besides well:
///   - EMSGSIZE: the message is longer than the receive, which has its length in Outcome::bytes. A
///     long message fails at both ends, a short one at the receiver. The channel goes on.
///   - ETIMEDOUT: EndpointOptions::timeout is over
///   - EFAULT: this side's device could not reach this side's memory: it was revoked or unmapped
///   - EACCES: the peer's device did not permit it: the peer's memory was deregistered or revoked
///   - ECONNRESET: the peer closed the channel, or ended
///   - EHOSTUNREACH: the peer's device does not answer: a cable, a switch, a machine
///   - EPROTO: the peer broke the protocol
///   - ECONNABORTED: another request failed for one of the reasons above, and the channel with it
///   - EIO: the device failed
/// All but EMSGSIZE end the channel and everything in flight.
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

    /// Sends a message of any length, also 0. Done when the memory may be reused; the peer may have
    /// the message later.
    [[nodiscard]] std::error_code isend(const Memory& memory, const void* address,
                                        std::size_t length, Tag tag, Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.send(piece(memory, address, length), tag, request);
        });
    }
    /// Receives a message of up to @p length bytes. Done when it is there; memory of a GPU may need
    /// iflush() before its kernels see it.
    [[nodiscard]] std::error_code irecv(const Memory& memory, void* address, std::size_t length,
                                        Tag tag, Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.receive(piece(memory, address, length), tag, request);
        });
    }

    /// Writes to @p offset bytes into a peer's memory. Done when it is there; the peer is not told.
    [[nodiscard]] std::error_code iput(const Memory& memory, const void* address,
                                       std::size_t length, const RemoteMemory& remote,
                                       std::uint64_t offset, Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.put(piece(memory, address, length), remote, offset, nullptr, request);
        });
    }
    /// As iput(), and @p value is given to the peer's notification() after the data is there.
    [[nodiscard]] std::error_code iput_notify(const Memory& memory, const void* address,
                                              std::size_t length, const RemoteMemory& remote,
                                              std::uint64_t offset, std::uint64_t value,
                                              Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.put(piece(memory, address, length), remote, offset, &value, request);
        });
    }
    /// Reads from @p offset bytes into a peer's memory.
    [[nodiscard]] std::error_code iget(const Memory& memory, void* address, std::size_t length,
                                       const RemoteMemory& remote, std::uint64_t offset,
                                       Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.get(piece(memory, address, length), remote, offset, request);
        });
    }
    /// Makes what this channel's devices wrote to a GPU's memory visible to the GPU, by reading it
    /// back through them. Of host memory there is nothing to do. EAGAIN also while 64 are in
    /// flight.
    [[nodiscard]] std::error_code iflush(const Memory& memory, const void* address,
                                         std::size_t length, Request& request) noexcept {
        return begin([&](detail::Engine& engine) {
            return engine.flush(piece(memory, address, length), request);
        });
    }

    /// The value of the oldest iput_notify() of the peer that has not been asked for.
    [[nodiscard]] std::optional<std::uint64_t> notification() noexcept {
        std::uint64_t value = 0;
        return engine_ && engine_->notification(value) ? std::optional(value) : std::nullopt;
    }

    /// Goes on, and tells what has become of a request. One that is done is forgotten. Of requests
    /// that are none: ESTALE for one that was told of already, EINVAL for one of another channel,
    /// EBADF after close(); they count as done.
    [[nodiscard]] Outcome test(const Request& request) noexcept {
        Outcome outcome;
        if (const int error = engine_ ? engine_->test(request, outcome) : EBADF; error != 0) {
            return {.done = true, .error = {error, std::system_category()}};
        }
        return outcome;
    }
    /// Tests until it is done. @return one that is not done when the time ran out; wait again
    /// @param timeout  wait_forever waits
    [[nodiscard]] Outcome wait(const Request& request, std::chrono::milliseconds timeout) noexcept {
        detail::SpinWait spin(timeout);
        for (;;) {
            const Outcome outcome = test(request);
            if (outcome.done || !spin.wait()) {
                return outcome;
            }
        }
    }
    /// Goes on with what is in flight.
    void progress() noexcept {
        if (engine_) {
            engine_->progress();
        }
    }

    /// Why there can be no more requests: EBADF after close(); no error while all is well.
    [[nodiscard]] std::error_code state() const noexcept {
        return {engine_ ? engine_->broken() : EBADF, std::system_category()};
    }
    /// Requests that were begun and not told of as done.
    [[nodiscard]] std::size_t in_flight() const noexcept {
        return engine_ ? engine_->in_flight() : 0;
    }
    /// Devices that messages are striped over.
    [[nodiscard]] std::size_t rails() const noexcept { return engine_ ? engine_->rails() : 0; }

    /// Ends it: waits until the peer has taken what was sent, up to EndpointOptions::linger; what
    /// is in flight otherwise is given up. @return what state() was before
    std::error_code close() noexcept {
        if (!engine_) {
            return {};
        }
        std::error_code state = this->state();
        // A child by fork(2) sends nothing: the queue pairs are those of its parent.
        if (creator_.is_current()) {
            engine_->drain();
            state = this->state();
            engine_->fail(EBADF);
        }
        engine_.reset();
        endpoint_.reset();
        return state;
    }

    // What Listener and Connector make of it.
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

/// A request of one of several channels.
struct Pending {
    Channel* channel = nullptr;
    Request request = {};
};

/// Tests requests of any channels until one is done. @return its position, with what has become of
/// it in @p outcome; the number of requests when the time ran out, or there are none
/// @param timeout  wait_forever waits
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
