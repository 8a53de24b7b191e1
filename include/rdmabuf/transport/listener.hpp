// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>
#include <rdmabuf/transport/detail/listener_state.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport {

/// Accepts any number of peers that have its handle. Moves only.
///
/// A peer first proves that it has the handle. Connections without this proof are closed and not
/// reported; they receive nothing, cost a socket each (64 at most) and do not delay other peers.
/// The connection is neither encrypted nor protected against change on the way: somebody who can
/// read the packets of the network learns the secrets of the handle.
class Listener {
  public:
    [[nodiscard]] const Handle& handle() const noexcept { return state_->handle(); }

    /// Accepts connections and goes on with them as far as is possible without waiting, and fills
    /// in
    /// @p channel when a peer is connected.
    /// @return no error when @p channel is there. EAGAIN while peers have to do something: call
    /// again. Every other error is that of one peer that has the handle, or of this machine
    /// (EMFILE, ENOMEM): error_info() has the details, and the listener continues. EBUSY stands for a
    /// verbs call that failed with EAGAIN.
    [[nodiscard]] std::error_code try_accept(std::optional<Channel>& channel) noexcept {
        std::unique_ptr<detail::Handshake> finished;
        detail::SetupProgress progress = state_->advance(finished, error_);
        if (progress == detail::SetupProgress::ready) {
            progress = detail::advance(finished, channel, error_);
        }
        switch (progress) {
            case detail::SetupProgress::waiting:
                return {EAGAIN, std::system_category()};
            case detail::SetupProgress::ready:
                return {};
            case detail::SetupProgress::failed:
                break;
        }
        return error_.code();
    }
    /// Sleeps until a peer is connected, or one has failed.
    /// @param timeout  wait_forever does not end
    /// @return a failure as of try_accept(), or ETIMEDOUT when the time is over
    [[nodiscard]] Result<Channel> accept(std::chrono::milliseconds timeout) noexcept {
        const detail::Timeout limit(timeout);
        std::optional<Channel> channel;
        std::error_code error;
        while ((error = try_accept(channel)).value() == EAGAIN) {
            if (limit.over()) {
                return detail::error_info(ETIMEDOUT, "no peer has connected in time");
            }
            state_->wait(limit.left());
        }
        return error ? Result<Channel>(error_) : Result<Channel>(*std::move(channel));
    }
    /// The reason for which try_accept() failed.
    [[nodiscard]] const ErrorInfo& error_info() const noexcept { return error_; }

    // For Endpoint.
    [[nodiscard]] static Result<Listener> open(std::shared_ptr<detail::EndpointState> endpoint,
                                               const std::string& host) noexcept {
        auto state =
            attempt([&] { return detail::ListenerState::open(std::move(endpoint), host); });
        return state ? Result<Listener>(Listener(*std::move(state)))
                     : Result<Listener>(state.error_info());
    }

  private:
    explicit Listener(std::unique_ptr<detail::ListenerState> state) noexcept
        : state_(std::move(state)) {}

    std::unique_ptr<detail::ListenerState> state_;
    ErrorInfo error_;
};

} // namespace rdmabuf::transport
