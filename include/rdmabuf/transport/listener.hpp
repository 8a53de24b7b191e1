// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>
#include <rdmabuf/transport/detail/patience.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport {

/// Waits for the peers that were given its handle, any number of them. Moves only. Whoever connects
/// without knowing the handle is dropped and not told of. Not encrypted: for trusted networks.
class Listener {
  public:
    [[nodiscard]] const Handle& handle() const noexcept { return handle_; }

    /// Goes on as far as it can without waiting, and fills in @p channel when a peer has connected.
    /// @return no error then; EAGAIN while there is nothing to do but ask again; any other error is
    /// of one peer that knew the handle, or of this machine (EMFILE, ENOMEM): error_info() says
    /// more, and the listener goes on.
    [[nodiscard]] std::error_code try_accept(std::optional<Channel>& channel) noexcept {
        take_connections();
        for (auto& handshake : pending_) {
            if (handshake == nullptr) {
                continue;
            }
            const std::error_code error = detail::try_finish(handshake, channel, error_);
            if (error.value() == EAGAIN || (error && stranger(handshake))) {
                continue;
            }
            handshake.reset();
            return error;
        }
        return {std::exchange(accept_error_, EAGAIN), std::system_category()};
    }
    /// As try_accept(), until a peer has connected. A failure: ETIMEDOUT when the time ran out.
    /// @param timeout  wait_forever waits
    [[nodiscard]] Result<Channel> accept(std::chrono::milliseconds timeout) noexcept {
        std::optional<Channel> channel;
        detail::Patience patience(timeout);
        std::error_code error;
        while ((error = try_accept(channel)).value() == EAGAIN) {
            if (!patience.wait()) {
                return detail::error_info(ETIMEDOUT, "no peer has connected in time");
            }
        }
        return error ? Result<Channel>(error_) : Result<Channel>(*std::move(channel));
    }
    /// Why try_accept() failed.
    [[nodiscard]] const ErrorInfo& error_info() const noexcept { return error_; }

    // What an Endpoint makes of it.
    [[nodiscard]] static Result<Listener> open(std::shared_ptr<detail::EndpointState> endpoint,
                                               const std::string& host) noexcept {
        detail::HostAddress address;
        if (detail::parse_address(host, address) != 0) {
            if (const int error = detail::find_address(host, address); error != 0) {
                return detail::error_info(error,
                                          "there is no interface of that name with an address; "
                                          "give an address, or a name that `ip address` shows");
            }
        }
        UniqueFd socket;
        std::uint16_t port = 0;
        if (const int error = detail::listen_at(address, socket, port); error != 0) {
            return detail::error_info(error, "cannot listen at that address");
        }
        std::uint64_t token = 0;
        if (::getrandom(&token, sizeof token, 0) != sizeof token) {
            return detail::error_info(errno, "getrandom");
        }
        return Listener(std::move(endpoint), std::move(socket),
                        Handle(address.bytes, address.scope, port, token));
    }

  private:
    Listener(std::shared_ptr<detail::EndpointState> endpoint, UniqueFd socket,
             const Handle& handle) noexcept
        : endpoint_(std::move(endpoint)), socket_(std::move(socket)), handle_(handle) {}

    /// Begins with those that have connected, as long as there is room to remember them.
    void take_connections() noexcept {
        for (auto& handshake : pending_) {
            if (handshake != nullptr) {
                continue;
            }
            UniqueFd socket(
                ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            if (!socket) {
                const bool nobody = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
                if (!nobody) {
                    failed(detail::error_info(errno, "a connection cannot be accepted"));
                }
                return;
            }
            auto begun =
                detail::begin_handshake(endpoint_, std::move(socket), handle_.token(), true);
            if (!begun) {
                failed(begun.error_info());
                return;
            }
            handshake = *std::move(begun);
        }
    }
    void failed(const ErrorInfo& failure) noexcept {
        error_ = failure;
        accept_error_ = failure.code().value();
    }
    [[nodiscard]] static bool stranger(std::unique_ptr<detail::Handshake>& handshake) noexcept {
        if (handshake->stranger()) {
            handshake.reset();
            return true;
        }
        return false;
    }

    /// Connections whose other end has not said everything yet.
    static constexpr std::size_t max_pending = 16;

    std::shared_ptr<detail::EndpointState> endpoint_;
    UniqueFd socket_;
    Handle handle_;
    std::array<std::unique_ptr<detail::Handshake>, max_pending> pending_{};
    ErrorInfo error_;
    int accept_error_ = EAGAIN;
};

} // namespace rdmabuf::transport
