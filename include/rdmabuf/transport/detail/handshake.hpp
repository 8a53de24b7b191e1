// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/engine.hpp>
#include <rdmabuf/transport/detail/protocol.hpp>
#include <rdmabuf/transport/detail/socket.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

/// From a socket to a channel: both ends say what they have (Hello), connect their queue pairs, and
/// say whether that worked (Verdict). Every step returns at once; both messages fit into a socket's
/// buffer, so neither end waits for the other to listen.
class Handshake {
  public:
    /// @param token  what the peer has to know, or what this side tells it
    Handshake(std::shared_ptr<EndpointState> endpoint, UniqueFd socket, std::uint64_t token,
              bool is_listener)
        : endpoint_(std::move(endpoint)),
          socket_(std::move(socket)),
          token_(token),
          is_listener_(is_listener),
          deadline_(now_ns() + std::chrono::nanoseconds(endpoint_->options.handshake).count()),
          arena_(endpoint_->options.eager_limit,
                 endpoint_->options.eager_slots + control_slots + credit_slots) {}

    /// Makes the queue pairs. @throws Error as PreparedQueuePair and MemoryRegion
    void prepare() {
        const std::uint32_t receives = arena_.receive_slots();
        const std::uint32_t sends = endpoint_->max_send_wr;
        rails_.reserve(endpoint_->pds.size());
        for (const ProtectionDomain& pd : endpoint_->pds) {
            const bool first = rails_.empty();
            const std::uint32_t selves = std::min(max_self_depth, sends);
            Rail& rail =
                rails_.emplace_back(pd, sends, selves, sends + selves + (first ? receives : 0));
            rail.arena.emplace(
                pd, arena_.data(), arena_.size(),
                MemoryRegionOptions{.access = Access::local_write | Access::remote_write |
                                              Access::remote_read});
            QueuePairOptions options = {.send_cq = rail.cq,
                                        .recv_cq = rail.cq,
                                        .max_send_wr = sends,
                                        .max_recv_wr = first ? receives : 1,
                                        .max_send_sge = 2,
                                        .max_inline_data = endpoint_->options.inline_data,
                                        .extended = ExtendedInterface::off,
                                        .port = endpoint_->options.port,
                                        .timeout = endpoint_->options.ack_timeout,
                                        .retry_count = endpoint_->options.retry_count};
            prepare_peer(rail, options);
            options.max_send_wr = selves;
            options.max_recv_wr = 1;
            options.max_inline_data = 0;
            PreparedQueuePair self(pd, options);
            const QueuePairAddress address = self.address();
            rail.self.emplace(std::move(self).connect(address));
        }
        for (std::uint32_t slot = 0; slot < receives; ++slot) {
            const Rail& rail = rails_.front();
            rail.prepared
                ->post_recv({.addr = reinterpret_cast<std::uintptr_t>(arena_.receive_slot(slot)),
                             .length = arena_.receive_size(),
                             .lkey = rail.arena->lkey()},
                            WorkId{.work = Work::receive, .number = slot}.encode())
                .throw_if_failed("ibv_post_recv");
        }
    }

    /// Goes on as far as it can. @return no failure when there is an engine to be had; EAGAIN while
    /// the peer is awaited; any other failure is the end
    [[nodiscard]] ErrorInfo step() noexcept {
        for (;;) {
            ErrorInfo failed = one_step();
            if (failed.code().value() == EAGAIN && now_ns() > deadline_) {
                return error_info(ETIMEDOUT,
                                  step_ == Step::connect
                                      ? "the listener's machine does not answer"
                                      : "the peer has connected, and does not introduce itself");
            }
            if (failed.code() || step_ == Step::ready) {
                return failed;
            }
        }
    }

    /// Whether a failure is for the peer to be a stranger, who has nothing to do with the listener.
    [[nodiscard]] bool stranger() const noexcept { return is_listener_ && !introduced_; }

    /// Only after step() said that there is one. @throws std::bad_alloc
    [[nodiscard]] std::unique_ptr<Engine> engine() {
        static constinit std::atomic<std::uint32_t> number{0};
        EndpointOptions options = endpoint_->options;
        options.inline_data = inline_data_;
        return std::make_unique<Engine>(endpoint_.get(), options, ++number, std::move(arena_),
                                        std::move(rails_), std::move(socket_), theirs_,
                                        endpoint_->max_message);
    }
    [[nodiscard]] const std::shared_ptr<EndpointState>& endpoint() const noexcept {
        return endpoint_;
    }

  private:
    enum class Step : std::uint8_t { connect, greet, hear, judge, ready };

    /// With less inside a request where the device does not take as much.
    void prepare_peer(Rail& rail, QueuePairOptions& options) {
        auto prepared = attempt([&] { return PreparedQueuePair(rail.pd, options); });
        if (!prepared && options.max_inline_data > 0) {
            inline_data_ = options.max_inline_data = 0;
            rail.prepared.emplace(rail.pd, options);
            return;
        }
        if (!prepared) {
            rail.prepared.emplace(rail.pd, options); // It says why once more.
            return;
        }
        rail.prepared.emplace(*std::move(prepared));
    }

    /// Waiting needs no reason.
    [[nodiscard]] static ErrorInfo because(int error, const char* message = "") {
        return error_info(error, error == EAGAIN || error == 0 ? "" : message);
    }

    [[nodiscard]] ErrorInfo one_step() noexcept {
        switch (step_) {
            case Step::connect:
                if (const int error = is_listener_ ? 0 : connected(socket_.get()); error != 0) {
                    return because(error, "nobody listens where the handle leads to");
                }
                step_ = Step::greet;
                return {};
            case Step::greet:
                if (const int error = greet(); error != 0) {
                    return because(error, "the peer takes no greeting");
                }
                step_ = Step::hear;
                return {};
            case Step::hear:
                return hear();
            case Step::judge:
                return judge();
            case Step::ready:
                break;
        }
        return {};
    }

    [[nodiscard]] int greet() noexcept {
        Hello hello = {.rails = static_cast<std::uint16_t>(rails_.size()),
                       .token = token_,
                       .eager_limit = endpoint_->options.eager_limit,
                       .eager_slots = endpoint_->options.eager_slots,
                       .max_message_size = endpoint_->max_message,
                       .probe_address = reinterpret_cast<std::uintptr_t>(arena_.scratch()),
                       .probe_rkey = rails_[0].arena->rkey()};
        for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
            hello.addresses[rail] = rails_[rail].prepared->address().encode();
        }
        return send_little(socket_.get(), std::as_bytes(std::span(&hello, 1)));
    }

    [[nodiscard]] ErrorInfo hear() noexcept {
        const auto bytes = std::as_writable_bytes(std::span(&theirs_, 1));
        int error = receive_into(socket_.get(), bytes, heard_);
        // A stranger is known by its first words; it may never say more.
        constexpr std::size_t words = offsetof(Hello, rails);
        if (heard_ >= words && theirs_.magic != Hello::expected_magic) {
            return because(EPROTO, "the other end is no transport of rdmabuf");
        }
        if (heard_ >= words && theirs_.version != Hello::expected_version) {
            introduced_ = true;
            return because(EPROTONOSUPPORT,
                           "the peer's transport is of another version: use the "
                           "same release of rdmabuf on both sides");
        }
        if (error != 0) {
            return because(error, error == ECONNRESET ? "the peer went away before it introduced "
                                                        "itself"
                                                      : "the peer has not introduced itself yet");
        }
        if (theirs_.token != token_) {
            return because(EPROTO, "whoever connected was not given this listener's handle");
        }
        introduced_ = true;
        if (theirs_.rails == 0 || theirs_.rails > max_rails || theirs_.eager_slots < 4 ||
            theirs_.max_message_size == 0) {
            return because(EPROTO, "the peer says impossible things of itself");
        }
        ErrorInfo failed = connect_queue_pairs();
        const auto verdict = static_cast<Verdict>(failed.code().value());
        error = send_little(socket_.get(), std::as_bytes(std::span(&verdict, 1)));
        if (failed.code()) {
            return failed;
        }
        heard_ = 0;
        step_ = Step::judge;
        return because(error, "the peer went away while it connected");
    }

    [[nodiscard]] ErrorInfo connect_queue_pairs() noexcept {
        while (rails_.size() > theirs_.rails) {
            rails_.pop_back();
        }
        for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
            const auto address = QueuePairAddress::decode(theirs_.addresses[rail]);
            if (!address) {
                return because(address.error(), address.reason().c_str());
            }
            auto connected =
                attempt([&] { return std::move(*rails_[rail].prepared).connect(*address); });
            if (!connected) {
                return connected.error_info();
            }
            rails_[rail].peer.emplace(*std::move(connected));
            rails_[rail].prepared.reset();
        }
        return {};
    }

    [[nodiscard]] ErrorInfo judge() noexcept {
        if (const int error = receive_into(socket_.get(),
                                           std::as_writable_bytes(std::span(&verdict_, 1)), heard_);
            error != 0) {
            return because(error, "the peer went away while it connected");
        }
        if (verdict_ != 0) {
            return because(static_cast<int>(verdict_),
                           "the peer could not connect its queue pairs");
        }
        step_ = Step::ready;
        return {};
    }

    std::shared_ptr<EndpointState> endpoint_;
    UniqueFd socket_;
    std::uint64_t token_;
    bool is_listener_;
    std::int64_t deadline_;
    Arena arena_;
    std::vector<Rail> rails_;
    std::uint32_t inline_data_ = endpoint_->options.inline_data;

    Step step_ = Step::connect;
    bool introduced_ = false;
    Hello theirs_{};
    Verdict verdict_ = 0;
    std::size_t heard_ = 0;
};

[[nodiscard]] inline Result<std::unique_ptr<Handshake>> begin_handshake(
    std::shared_ptr<EndpointState> endpoint, UniqueFd socket, std::uint64_t token,
    bool is_listener) noexcept {
    auto made = attempt([&] {
        return std::make_unique<Handshake>(std::move(endpoint), std::move(socket), token,
                                           is_listener);
    });
    if (!made) {
        return made;
    }
    const auto prepared = attempt([&] { (*made)->prepare(); });
    return prepared ? std::move(made) : Result<std::unique_ptr<Handshake>>(prepared.error_info());
}

/// Goes on, and makes the channel when there is nothing left to do.
/// @return EAGAIN while the peer is awaited; any other error is in @p failed, too
template <class Channel>
[[nodiscard]] std::error_code try_finish(std::unique_ptr<Handshake>& handshake,
                                         std::optional<Channel>& channel,
                                         ErrorInfo& failure) noexcept {
    if (handshake == nullptr) {
        return failure.code() ? failure.code() : std::error_code(EBADF, std::system_category());
    }
    ErrorInfo failed = handshake->step();
    if (failed.code().value() == EAGAIN) {
        return failed.code();
    }
    if (!failed.code()) {
        auto engine = attempt([&] { return handshake->engine(); });
        if (engine) {
            channel.emplace(handshake->endpoint(), *std::move(engine));
            handshake.reset();
            return {};
        }
        failed = engine.error_info();
    }
    failure = std::move(failed);
    return failure.code();
}

} // namespace rdmabuf::transport::detail
