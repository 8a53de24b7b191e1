// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/channel_setup.hpp>
#include <rdmabuf/transport/detail/channel_state.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

/// The result of a call that advances the setup of a channel without waiting.
enum class SetupProgress : std::uint8_t { waiting, ready, failed };

/// Sets up one channel over a socket. Messages on the socket, in this order:
///
///     connector                     listener
///     ConnectorProof ------------>  checks the secret, creates its queue pairs
///     checks the secret,     <----  Hello
///     creates its queue pairs
///     Hello --------------------->
///     ConnectResult <------------>  ConnectResult, when its queue pairs are connected
///
/// If an end fails to create its queue pairs, it sends the errno value in its Hello, so that both
/// ends report the reason. Each message fits into the socket's buffer, so that sending never waits.
class RDMABUF_EXPORT Handshake {
  public:
    /// Starts to connect to the listener that created @p handle.
    /// @throws Error EINVAL for an empty handle; otherwise the errno value of socket(2) or
    ///         connect(2)
    [[nodiscard]] static std::unique_ptr<Handshake> connect(std::shared_ptr<EndpointState> endpoint,
                                                            const Handle& handle);
    /// Creates the listener's end of a handshake. The connector must have proved, with a
    /// ConnectorProof, that it has the handle.
    Handshake(std::shared_ptr<EndpointState> endpoint, UniqueFd socket, const Handle& handle);
    Handshake(const Handshake&) = delete;
    Handshake& operator=(const Handshake&) = delete;
    ~Handshake();

    /// Advances the handshake without waiting.
    /// @param error  set if the result is `failed`; its code is never EAGAIN
    [[nodiscard]] SetupProgress advance(ErrorInfo& error) noexcept;
    /// Waits until advance() can continue, or until @p timeout has passed; a negative @p timeout
    /// means no limit.
    void wait(std::chrono::milliseconds timeout) const noexcept;

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    /// Returns the poll(2) events of socket() after which advance() can continue.
    [[nodiscard]] short events() const noexcept;
    /// Returns the time at which advance() fails with ETIMEDOUT, in nanoseconds of now_ns();
    /// std::nullopt if there is no time limit.
    [[nodiscard]] std::optional<std::int64_t> deadline() const noexcept { return deadline_; }

    /// Returns the channel. Must be called only once, after advance() has returned `ready`.
    /// @throws Error with the errno value of epoll_ctl(2)
    [[nodiscard]] std::unique_ptr<ChannelState> take_channel();
    [[nodiscard]] const std::shared_ptr<EndpointState>& endpoint() const noexcept {
        return setup_.endpoint();
    }

  private:
    enum class Step : std::uint8_t { connect, introduce, receive_hello, receive_result, ready };

    /// Performs the current step of the handshake.
    /// @return false if the step must wait for the peer
    /// @throws Error if the channel cannot be set up
    bool advance_step();
    void send_hello(int error);
    /// Creates the queue pairs of this end and sends the Hello that describes them.
    void introduce();
    void check_hello();
    /// Reads bytes of the current message from the socket without waiting.
    /// @return true if all of @p bytes have arrived
    bool receive(std::span<std::byte> bytes);

    [[nodiscard]] const EndpointOptions& options() const noexcept { return endpoint()->options; }

    ChannelSetup setup_;
    UniqueFd socket_;
    Handle handle_;
    bool is_connector_;
    /// The time at which the handshake fails, in nanoseconds of now_ns(). Has no value on a
    /// connector that has not received the Hello of the listener.
    std::optional<std::int64_t> deadline_ = std::nullopt;
    std::unique_ptr<ChannelState> channel_;

    Step step_;
    Hello theirs_{};
    ConnectResult their_result_ = 0;
    /// The number of bytes of the current message that have arrived.
    std::size_t received_ = 0;
    rdmabuf::detail::CreatorProcess creator_;
};

/// Advances @p handshake without waiting. Creates @p channel when both ends are connected. After
/// success or failure, @p handshake is nullptr.
template <class Channel>
[[nodiscard]] SetupProgress advance(std::unique_ptr<Handshake>& handshake,
                                    std::optional<Channel>& channel, ErrorInfo& error) noexcept {
    if (handshake == nullptr) {
        if (error.error() == 0) {
            error = error_info(EBADF, "an earlier call has already opened the channel");
        }
        return SetupProgress::failed;
    }
    const SetupProgress progress = handshake->advance(error);
    if (progress == SetupProgress::ready) {
        auto state = attempt([&] { return handshake->take_channel(); });
        if (state) {
            channel.emplace(handshake->endpoint(), *std::move(state));
        } else {
            error = state.error_info();
        }
    }
    if (progress != SetupProgress::waiting) {
        handshake.reset();
    }
    return progress == SetupProgress::ready && !channel ? SetupProgress::failed : progress;
}

} // namespace rdmabuf::transport::detail
