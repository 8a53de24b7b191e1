// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/engine.hpp>
#include <rdmabuf/transport/detail/protocol.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

/// The result of a call that goes on with setting up a channel and does not wait.
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
/// An end that cannot create its queue pairs says so in its Hello, so that both ends report the
/// reason. Each message fits into the socket's buffer, so sending never waits.
class RDMABUF_EXPORT Handshake {
  public:
    /// Begins to connect to the listener of @p handle. @throws Error what connect(2) reports
    [[nodiscard]] static std::unique_ptr<Handshake> connect(std::shared_ptr<EndpointState> endpoint,
                                                            const Handle& handle);
    /// Continues at the listener, for a peer whose ConnectorProof was right.
    Handshake(std::shared_ptr<EndpointState> endpoint, UniqueFd socket, const Handle& handle);
    Handshake(const Handshake&) = delete;
    Handshake& operator=(const Handshake&) = delete;
    ~Handshake();

    /// Goes on as far as is possible without waiting.
    /// @param error  filled in when the result is `failed`. Its code is never EAGAIN.
    [[nodiscard]] SetupProgress advance(ErrorInfo& error) noexcept;
    /// Waits until advance() can go on, or until @p timeout is over; a negative one does not end.
    void wait(std::chrono::milliseconds timeout) const noexcept;

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    /// The events of poll(2) after which advance() can go on.
    [[nodiscard]] short events() const noexcept;
    /// In nanoseconds of now_ns(): when advance() fails with ETIMEDOUT.
    [[nodiscard]] std::optional<std::int64_t> deadline() const noexcept { return deadline_; }

    /// To be called once, after advance() has returned `ready`. @throws std::bad_alloc
    [[nodiscard]] std::unique_ptr<Engine> engine() {
        static constinit std::atomic<std::uint32_t> number{0};
        EndpointOptions options = endpoint_->options;
        options.inline_data = inline_data_;
        return std::make_unique<Engine>(endpoint_.get(), options, ++number, *std::move(arena_),
                                        std::move(rails_), std::move(socket_), theirs_,
                                        endpoint_->max_message);
    }
    [[nodiscard]] const std::shared_ptr<EndpointState>& endpoint() const noexcept {
        return endpoint_;
    }

  private:
    enum class Step : std::uint8_t { connect, introduce, receive_hello, receive_result, ready };

    /// Does what the current step needs. @return false to wait for the peer
    /// @throws Error when the channel cannot be set up
    bool advance_step();
    void create_queue_pairs();
    void prepare_peer(Rail& rail, QueuePairOptions& options);
    void send_hello(int error);
    /// Creates the queue pairs of this end and sends its Hello.
    void introduce();
    void check_hello();
    void connect_queue_pairs();
    /// @return whether all of @p bytes has arrived
    bool receive(std::span<std::byte> bytes);

    std::shared_ptr<EndpointState> endpoint_;
    UniqueFd socket_;
    Handle handle_;
    bool is_connector_;
    /// In nanoseconds of now_ns(); none while the connector waits for the listener to accept.
    std::optional<std::int64_t> deadline_ = std::nullopt;
    std::optional<Arena> arena_ = std::nullopt;
    std::vector<Rail> rails_;
    std::uint32_t inline_data_;

    Step step_;
    Hello theirs_{};
    ConnectResult their_result_ = 0;
    /// Bytes of the message that is being received.
    std::size_t received_ = 0;
};

/// Advances @p handshake, and makes the channel when both ends are ready.
template <class Channel>
[[nodiscard]] SetupProgress advance(std::unique_ptr<Handshake>& handshake,
                                    std::optional<Channel>& channel, ErrorInfo& error) noexcept {
    if (handshake == nullptr) {
        return SetupProgress::failed;
    }
    const SetupProgress progress = handshake->advance(error);
    if (progress == SetupProgress::ready) {
        auto engine = attempt([&] { return handshake->engine(); });
        if (engine) {
            channel.emplace(handshake->endpoint(), *std::move(engine));
        } else {
            error = engine.error_info();
        }
    }
    if (progress != SetupProgress::waiting) {
        handshake.reset();
    }
    return progress == SetupProgress::ready && !channel ? SetupProgress::failed : progress;
}

} // namespace rdmabuf::transport::detail
