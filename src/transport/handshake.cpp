// SPDX-License-Identifier: BSD-3-Clause
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>

#include "connection/tcp_socket.hpp"
#include "transport/wait_for_sockets.hpp"

namespace rdmabuf::transport::detail {
namespace {

using rdmabuf::detail::check_zero;
using rdmabuf::detail::raise;

/// QueuePairOptions::min_rnr_timer: 0.02 ms. The shared receive queue is replenished quickly, so
/// that a short wait is enough.
constexpr std::uint8_t rnr_timer = 2;

/// The largest errno value in Linux.
constexpr std::uint32_t max_errno = 4095;

sockaddr_storage address_of(const Handle& handle, socklen_t& size) {
    sockaddr_storage address{};
    in6_addr ipv6{};
    std::memcpy(&ipv6, handle.address().data(), sizeof ipv6);
    // Use an IPv4 socket for an IPv4-mapped address: this works also if this machine does not
    // support IPv6.
    if (IN6_IS_ADDR_V4MAPPED(&ipv6)) {
        auto& result = reinterpret_cast<sockaddr_in&>(address);
        result.sin_family = AF_INET;
        result.sin_port = htons(handle.port());
        std::memcpy(&result.sin_addr, handle.address().data() + 12, sizeof result.sin_addr);
        size = sizeof result;
    } else {
        auto& result = reinterpret_cast<sockaddr_in6&>(address);
        result.sin6_family = AF_INET6;
        result.sin6_port = htons(handle.port());
        result.sin6_scope_id = handle.scope();
        result.sin6_addr = ipv6;
        size = sizeof result;
    }
    return address;
}

template <class Message>
void send(int socket, const Message& message) {
    const ssize_t sent = ::send(socket, &message, sizeof message, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
        raise(ECONNRESET, "send", "the peer closed the connection");
    }
    check_zero(sent < 0 ? errno : 0, "send");
    if (static_cast<std::size_t>(sent) != sizeof message) {
        raise(EIO, "send", "the socket's buffer has no room for a message of the handshake");
    }
}

/// Checks an errno value from the peer. EAGAIN is replaced by EBUSY, because EAGAIN would mean that
/// this end has to wait.
int checked_errno(std::uint32_t error) {
    if (error > max_errno) {
        raise(EPROTO, "recv", "the peer reports an impossible errno value");
    }
    return error == EAGAIN ? EBUSY : static_cast<int>(error);
}

/// Calls @p work and sends its errno value to the peer: 0, or the errno value of the exception,
/// which is then rethrown.
template <class Work, class SendError>
void do_and_report(const Work& work, const SendError& send_error) {
    const auto report = [&](int error) {
        // The exception in flight reaches the caller, so a failure to send its errno value is
        // ignored.
        static_cast<void>(attempt([&] { send_error(error); }));
    };
    try {
        work();
    } catch (const std::system_error& error) {
        report(error.code().value());
        throw;
    } catch (const std::bad_alloc&) {
        report(ENOMEM);
        throw;
    }
    send_error(0);
}

} // namespace

std::unique_ptr<Handshake> Handshake::connect(std::shared_ptr<EndpointState> endpoint,
                                              const Handle& handle) {
    if (handle == Handle()) {
        raise(EINVAL, "connect", "the handle is empty: it belongs to no listener");
    }
    socklen_t size = 0;
    const sockaddr_storage address = address_of(handle, size);
    UniqueFd socket =
        rdmabuf::detail::tcp_start_connect(reinterpret_cast<const sockaddr&>(address), size);
    auto handshake = std::make_unique<Handshake>(std::move(endpoint), std::move(socket), handle);
    handshake->is_connector_ = true;
    handshake->deadline_.reset();
    handshake->step_ = Step::connect;
    return handshake;
}

Handshake::Handshake(std::shared_ptr<EndpointState> endpoint, UniqueFd socket, const Handle& handle)
    : endpoint_(std::move(endpoint)),
      socket_(std::move(socket)),
      handle_(handle),
      is_connector_(false),
      deadline_(now_ns() + std::chrono::nanoseconds(endpoint_->options.handshake).count()),
      inline_data_(endpoint_->options.inline_data),
      step_(Step::introduce) {}

Handshake::~Handshake() {
    if (channel_ != nullptr) {
        endpoint_->detach(*channel_);
    }
}

std::unique_ptr<ChannelState> Handshake::take_channel() {
    if (endpoint_->options.keep_sockets && theirs_.keep_socket != 0) {
        endpoint_->watch_socket(*channel_, std::move(socket_));
    }
    return std::move(channel_);
}

SetupProgress Handshake::advance(ErrorInfo& error) noexcept {
    const auto advanced = attempt([&] {
        while (step_ != Step::ready) {
            if (!advance_step()) {
                if (deadline_ && now_ns() > *deadline_) {
                    raise(ETIMEDOUT, "recv",
                          "the peer did not finish connecting in the time of "
                          "EndpointOptions::handshake");
                }
                return false;
            }
        }
        return true;
    });
    if (!advanced) {
        error = advanced.error_info();
        if (error.error() == EAGAIN) {
            error =
                ErrorInfo(EBUSY, error.function(), "the call failed with EAGAIN: " + error.hint());
        }
        return SetupProgress::failed;
    }
    return *advanced ? SetupProgress::ready : SetupProgress::waiting;
}

short Handshake::events() const noexcept {
    return step_ == Step::connect ? POLLOUT : POLLIN;
}

void Handshake::wait(std::chrono::milliseconds timeout) const noexcept {
    pollfd request{.fd = socket_.get(), .events = events(), .revents = 0};
    wait_for_sockets(std::span(&request, 1), timeout, deadline_);
}

bool Handshake::advance_step() {
    switch (step_) {
        case Step::connect:
            if (const int error = rdmabuf::detail::tcp_connect_result(socket_.get()); error != 0) {
                check_zero(error == EAGAIN ? 0 : error, "connect",
                           "the listener of the handle cannot be reached");
                return false;
            }
            send(socket_.get(), ConnectorProof{.secret = handle_.connector_secret()});
            step_ = Step::receive_hello;
            return true;
        case Step::introduce:
            introduce();
            step_ = Step::receive_hello;
            return true;
        case Step::receive_hello:
            if (!receive(std::as_writable_bytes(std::span(&theirs_, 1)))) {
                return false;
            }
            check_hello();
            if (is_connector_) {
                deadline_ =
                    now_ns() + std::chrono::nanoseconds(endpoint_->options.handshake).count();
                introduce();
            }
            do_and_report(
                [this] { connect_queue_pairs(); },
                [this](int error) { send(socket_.get(), static_cast<ConnectResult>(error)); });
            step_ = Step::receive_result;
            return true;
        case Step::receive_result:
            if (!receive(std::as_writable_bytes(std::span(&their_result_, 1)))) {
                return false;
            }
            check_zero(checked_errno(their_result_), "ibv_modify_qp",
                       "the peer could not connect its queue pairs");
            step_ = Step::ready;
            return true;
        case Step::ready:
            break;
    }
    return true;
}

bool Handshake::receive(std::span<std::byte> bytes) {
    while (received_ < bytes.size()) {
        const ssize_t count =
            ::recv(socket_.get(), bytes.data() + received_, bytes.size() - received_, 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            return false;
        }
        if (count == 0 || (count < 0 && errno == ECONNRESET)) {
            raise(ECONNRESET, "recv",
                  is_connector_ && step_ == Step::receive_hello
                      ? "the listener closed the connection: the process that listens there did "
                        "not make this handle, or it has ended"
                      : "the peer closed the connection while it connected");
        }
        check_zero(count < 0 ? errno : 0, "recv");
        received_ += static_cast<std::size_t>(count);
    }
    received_ = 0;
    return true;
}

void Handshake::introduce() {
    do_and_report([this] { create_queue_pairs(); }, [this](int error) { send_hello(error); });
}

void Handshake::send_hello(int error) {
    const EndpointOptions& options = endpoint_->options;
    SharedState& shared = endpoint_->shared;
    Hello hello = {.rails = static_cast<std::uint16_t>(prepared_.size()),
                   .secret = is_connector_ ? Handle::Secret{} : handle_.listener_secret(),
                   .error = static_cast<std::uint32_t>(error),
                   .eager_limit = options.eager_limit,
                   .unexpected_limit = options.unexpected_limit,
                   .notification_limit = options.notification_limit,
                   .keep_socket = options.keep_sockets ? 1U : 0U,
                   .max_message_size = endpoint_->max_message,
                   .probe_address = reinterpret_cast<std::uintptr_t>(shared.pool.probe_line())};
    if (error == 0) {
        for (std::size_t rail = 0; rail < prepared_.size(); ++rail) {
            hello.probe_rkeys[rail] = shared.rails[rail]->probe_line.rkey();
            hello.addresses[rail] = prepared_[rail].address().encode();
        }
    }
    send(socket_.get(), hello);
}

void Handshake::check_hello() {
    if (theirs_.magic != Hello::expected_magic) {
        raise(EPROTO, "recv", "the other end does not use the transport of rdmabuf");
    }
    if (is_connector_ && !same_secret(theirs_.secret, handle_.listener_secret())) {
        raise(EPROTO, "recv", "the process that listens there did not make this handle");
    }
    if (theirs_.version != Hello::current_version) {
        raise(EPROTONOSUPPORT, "recv",
              "the peer's transport is of another version: use the same release of rdmabuf on both "
              "sides");
    }
    check_zero(checked_errno(theirs_.error), "ibv_create_qp",
               "the peer could not create its queue pairs; its own error has the details");
    constexpr std::uint32_t least_limit = 4096;
    if (theirs_.rails == 0 || theirs_.rails > max_rails || theirs_.unexpected_limit < least_limit ||
        theirs_.notification_limit < least_limit || theirs_.max_message_size == 0) {
        raise(EPROTO, "recv", "the limits that the peer sent are impossible");
    }
}

void Handshake::create_queue_pairs() {
    const EndpointOptions& all = endpoint_->options;
    prepared_.reserve(endpoint_->shared.rails.size());
    for (const auto& rail : endpoint_->shared.rails) {
        QueuePairOptions options = {.send_cq = rail->cq,
                                    .recv_cq = rail->cq,
                                    .max_send_wr = rail->send_depth,
                                    .max_recv_wr = 0,
                                    .max_send_sge = 2,
                                    .max_inline_data = inline_data_,
                                    .srq = &rail->srq,
                                    .extended = ExtendedInterface::off,
                                    .port = all.port,
                                    .gid_index = all.gid_index,
                                    .pkey_index = all.pkey_index,
                                    .service_level = all.service_level,
                                    .traffic_class = all.traffic_class,
                                    .flow_label = all.flow_label,
                                    .timeout = all.ack_timeout,
                                    .retry_count = all.retry_count,
                                    .min_rnr_timer = rnr_timer};
        prepare(rail->pd, options);
    }
}

void Handshake::prepare(const ProtectionDomain& pd, QueuePairOptions& options) {
    try {
        prepared_.emplace_back(pd, options);
        return;
    } catch (const Error&) {
        if (options.max_inline_data == 0) {
            throw;
        }
    }
    // The device may not support this length of inline data. Create the queue pair again without
    // inline data.
    inline_data_ = options.max_inline_data = 0;
    prepared_.emplace_back(pd, options);
}

void Handshake::connect_queue_pairs() {
    static constinit std::atomic<std::uint32_t> last_number{0};
    SharedState& shared = endpoint_->shared;
    while (prepared_.size() > theirs_.rails) {
        prepared_.pop_back();
    }
    std::vector<ChannelRail> rails;
    rails.reserve(prepared_.size());
    for (std::size_t rail = 0; rail < prepared_.size(); ++rail) {
        const auto address = QueuePairAddress::decode(theirs_.addresses[rail]);
        if (!address) {
            address.error_info().raise();
        }
        rails.emplace_back(std::move(prepared_[rail]).connect(*address),
                           shared.rails[rail]->send_depth);
    }
    prepared_.clear();
    constexpr std::uint64_t longest = std::uint64_t{1} << 31U;
    auto channel = std::make_unique<ChannelState>(
        shared, endpoint_.get(), ++last_number, std::move(rails), theirs_, inline_data_,
        static_cast<std::uint32_t>(
            std::min({endpoint_->max_message, theirs_.max_message_size, longest})));
    // The peer may send as soon as its queue pair is connected. The channel receives these messages
    // although its handshake has not finished.
    endpoint_->attach(*channel);
    channel_ = std::move(channel);
}

} // namespace rdmabuf::transport::detail
