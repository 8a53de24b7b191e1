// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport {

/// Connects to a Listener. Moves only. Destroying it gives up.
class Connector {
  public:
    /// Goes on with connecting as far as is possible without waiting, and fills in @p channel when
    /// both ends are ready. The peer has to call accept() or try_accept() meanwhile.
    /// @return no error when @p channel is there. EAGAIN while the peer has to do something: call
    /// again. Every other error ends this connector, and error_info() has the details:
    ///   - ECONNREFUSED: no process listens there; EHOSTUNREACH, ENETUNREACH, ETIMEDOUT
    ///   - ECONNRESET: the peer closed the connection, or the process that listens there now did
    ///   not
    ///     make the handle
    ///   - EPROTO, EPROTONOSUPPORT: the peer is another program, or has another version
    ///   - EBUSY: a verbs call of either end failed with EAGAIN, which means too few resources
    ///   - the errno of creating or connecting the queue pairs, at either end
    [[nodiscard]] std::error_code try_connect(std::optional<Channel>& channel) noexcept {
        switch (detail::advance(handshake_, channel, error_)) {
            case detail::SetupProgress::waiting:
                return {EAGAIN, std::system_category()};
            case detail::SetupProgress::ready:
                return {};
            case detail::SetupProgress::failed:
                break;
        }
        return error_.error() != 0 ? error_.code() : std::error_code(EBADF, std::system_category());
    }
    /// Sleeps until both ends are ready, or the connector has failed.
    /// @param timeout  wait_forever does not end
    /// @return a failure as of try_connect(), or ETIMEDOUT when the time is over: wait() again
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
    /// The reason for which try_connect() failed.
    [[nodiscard]] const ErrorInfo& error_info() const noexcept { return error_; }

    // For Endpoint.
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
