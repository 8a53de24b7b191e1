// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>
#include <rdmabuf/transport/detail/listener_state.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport {

/// Accepts any number of peers that have the handle of this listener. A listener can be moved but
/// not copied.
///
/// A peer must first prove that it has the handle. A connection that does not send this proof
/// within EndpointOptions::handshake is closed, and is not reported to the program. The listener
/// sends no data on it, and it does not delay other peers. At most 64 connections without a proof
/// exist at a time; each of them uses only a socket. A listener sets up at most 128 channels at a
/// time; the connections of further peers wait. Connections are neither encrypted nor protected
/// against modification: an attacker who can read the packets of the network learns the secrets of
/// the handle.
class Listener {
  public:
    [[nodiscard]] const Handle& handle() const noexcept { return state_->handle(); }

    /// Accepts connections, advances their handshakes without waiting, and sets @p channel when a
    /// peer is connected.
    /// @return no error when @p channel is set; EAGAIN while no peer is ready: call again. After
    ///         every other error, the listener continues, and error_info() has the details. Such an
    ///         error means that the handshake with one peer has failed, or that this machine has
    ///         too few resources (EMFILE, ENOMEM). EBUSY means that a verbs call failed with
    ///         EAGAIN.
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
    /// Waits until a peer is connected, or the handshake with a peer has failed.
    /// @param timeout  wait_forever for no time limit
    /// @return the channel, or an error of try_accept(), or ETIMEDOUT if @p timeout has passed
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
    /// Returns a descriptor for epoll(7) or poll(2), which is readable when try_accept() can
    /// continue. A handshake that exceeds its time limit EndpointOptions::handshake causes no
    /// event. The listener owns the descriptor. Returns std::nullopt if the last try_accept() did
    /// not advance all handshakes, or if 128 handshakes (the maximum) are in progress: then call
    /// try_accept() again after at most a few milliseconds.
    [[nodiscard]] std::optional<int> descriptor() const noexcept { return state_->descriptor(); }
    /// Returns the details of the last error, except EAGAIN, that try_accept() has returned.
    [[nodiscard]] const ErrorInfo& error_info() const noexcept { return error_; }

    // Only Endpoint calls this function.
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
