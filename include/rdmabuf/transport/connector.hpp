// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport {

/// An attempt to connect to a Listener. A connector can be moved but not copied. Destroying a
/// connector cancels the attempt.
class Connector {
  public:
    /// Advances the connection without waiting, and sets @p channel when both ends are connected.
    /// The connection is set up only when the peer calls Listener::accept() or try_accept().
    /// @return no error when @p channel is set; EAGAIN while the peer has not finished: call again.
    ///         Every other error ends this connector, and error_info() has the details:
    ///   - ECONNREFUSED: no process listens at the address of the handle
    ///   - EHOSTUNREACH, ENETUNREACH: the network has no route to the address of the handle
    ///   - ETIMEDOUT: the peer did not respond in time, or exceeded EndpointOptions::handshake
    ///   - ECONNRESET: the peer closed the connection, or another process than the creator of the
    ///     handle now listens at this address
    ///   - EPROTO, EPROTONOSUPPORT: the peer is another program, or uses another version of this
    ///     library
    ///   - EBUSY: a verbs call of one of the ends failed with EAGAIN, because of too few resources
    ///   - EBADF: an earlier call has already set a channel
    ///   - another errno value: a call of one of the ends failed, for example to create or connect
    ///     its queue pairs
    [[nodiscard]] std::error_code try_connect(std::optional<Channel>& channel) noexcept {
        switch (detail::advance(handshake_, channel, error_)) {
            case detail::SetupProgress::waiting:
                return {EAGAIN, std::system_category()};
            case detail::SetupProgress::ready:
                return {};
            case detail::SetupProgress::failed:
                break;
        }
        return error_.code();
    }
    /// Waits until both ends are connected, or the connector has failed.
    /// @param timeout  wait_forever for no time limit
    /// @return the channel, or an error of try_connect(), or ETIMEDOUT if @p timeout has passed;
    ///         wait() may then be called again
    [[nodiscard]] Result<Channel> wait(std::chrono::milliseconds timeout) noexcept {
        const detail::Timeout limit(timeout);
        std::optional<Channel> channel;
        while (try_connect(channel).value() == EAGAIN) {
            if (limit.over()) {
                return detail::error_info(ETIMEDOUT, "the peer has not accepted in time");
            }
            handshake_->wait(limit.left());
        }
        return channel ? Result<Channel>(*std::move(channel)) : Result<Channel>(error_);
    }
    /// Returns a descriptor for poll(2) or epoll(7), and in @p events the events after which
    /// try_connect() can continue: POLLIN or POLLOUT, whose values are those of EPOLLIN and
    /// EPOLLOUT. Call this function again after each call of try_connect(), because the descriptor
    /// and the events can change. The connector owns the descriptor. If try_connect() opens the
    /// channel, remove the descriptor from an epoll(7) set, because the channel may keep the
    /// socket. If try_connect() fails, it closes the descriptor. The end of
    /// EndpointOptions::handshake causes no event.
    /// @return std::nullopt if try_connect() has opened the channel or has failed
    [[nodiscard]] std::optional<int> descriptor(short& events) const noexcept {
        if (handshake_ == nullptr) {
            return std::nullopt;
        }
        events = handshake_->events();
        return handshake_->socket();
    }
    /// Returns the details of the last error, except EAGAIN, that try_connect() has returned.
    [[nodiscard]] const ErrorInfo& error_info() const noexcept { return error_; }

    // Only Endpoint calls this function.
    [[nodiscard]] static Result<Connector> open(std::shared_ptr<detail::EndpointState> endpoint,
                                                const Handle& handle) noexcept {
        auto handshake =
            attempt([&] { return detail::Handshake::connect(std::move(endpoint), handle); });
        return handshake ? Result<Connector>(Connector(*std::move(handshake)))
                         : Result<Connector>(handshake.error_info());
    }

  private:
    explicit Connector(std::unique_ptr<detail::Handshake> handshake) noexcept
        : handshake_(std::move(handshake)) {}

    std::unique_ptr<detail::Handshake> handshake_;
    ErrorInfo error_;
};

} // namespace rdmabuf::transport
