// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>
#include <rdmabuf/transport/detail/patience.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport {

/// A connection that is being made. Moves only; dropping it gives up.
class Connector {
  public:
    /// Goes on as far as it can without waiting, and fills in @p channel when all is done; the peer
    /// has to accept meanwhile. @return no error then; EAGAIN while there is nothing to do but ask
    /// again; any other is the end, and error_info() says why:
    ///   - ECONNREFUSED: nobody listens there; EHOSTUNREACH, ENETUNREACH, ETIMEDOUT
    ///   - ECONNRESET: the peer went away, or did not take the handle's token for its own
    ///   - EPROTO, EPROTONOSUPPORT: the peer is something else, or of another version
    ///   - what connecting queue pairs fails with, at either end
    [[nodiscard]] std::error_code try_connect(std::optional<Channel>& channel) noexcept {
        const std::error_code error = detail::try_finish(handshake_, channel, error_);
        if (error && error.value() != EAGAIN) {
            handshake_.reset();
        }
        return error;
    }
    /// As try_connect(), until it is done. A failure: ETIMEDOUT when the time ran out.
    /// @param timeout  wait_forever waits
    [[nodiscard]] Result<Channel> wait(std::chrono::milliseconds timeout) noexcept {
        std::optional<Channel> channel;
        detail::Patience patience(timeout);
        while (try_connect(channel).value() == EAGAIN) {
            if (!patience.wait()) {
                return detail::error_info(ETIMEDOUT, "the peer has not accepted in time");
            }
        }
        return channel ? Result<Channel>(*std::move(channel)) : Result<Channel>(error_);
    }
    /// Why try_connect() failed.
    [[nodiscard]] const ErrorInfo& error_info() const noexcept { return error_; }

    // What an Endpoint makes of it.
    [[nodiscard]] static Result<Connector> open(std::shared_ptr<detail::EndpointState> endpoint,
                                                const Handle& handle) noexcept {
        if (handle == Handle()) {
            return detail::error_info(EINVAL, "the handle is empty: it is of no listener");
        }
        UniqueFd socket;
        if (const int error = detail::connect_to(handle, socket); error != 0) {
            return detail::error_info(error, "the listener's address cannot be connected to");
        }
        auto handshake =
            detail::begin_handshake(std::move(endpoint), std::move(socket), handle.token(), false);
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
