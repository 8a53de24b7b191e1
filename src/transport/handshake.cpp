// SPDX-License-Identifier: BSD-3-Clause
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

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

sockaddr_storage address_of(const Handle& handle, socklen_t& size) {
    sockaddr_storage address{};
    in6_addr ipv6{};
    std::memcpy(&ipv6, handle.address().data(), sizeof ipv6);
    // Use an IPv4 socket for an IPv4-mapped address. An IPv6 socket would fail on a machine without
    // IPv6.
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

/// Calls @p work. Sends the result to the peer: 0, or the errno value of an exception of @p work.
/// @throws Error with the contents of this exception
template <class Work, class SendError>
void do_and_report(const Work& work, const SendError& send_error) {
    if (const auto done = attempt(work); !done) {
        // A failure to send is ignored, because the caller gets the error of `work`.
        static_cast<void>(attempt([&] { send_error(done.error()); }));
        done.error_info().raise();
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
    : setup_(std::move(endpoint)),
      socket_(std::move(socket)),
      handle_(handle),
      is_connector_(false),
      deadline_(now_ns() + to_ns(options().handshake)),
      step_(Step::introduce) {}

Handshake::~Handshake() {
    if (socket_ && creator_.is_current()) {
        // Ends the connection even if a forked child has the socket open, too.
        ::shutdown(socket_.get(), SHUT_RDWR);
    }
    if (channel_ != nullptr) {
        endpoint()->abandon(*channel_);
    }
}

std::unique_ptr<ChannelState> Handshake::take_channel() {
    if (options().keep_sockets && theirs_.keep_socket != 0) {
        endpoint()->watch_socket(*channel_, std::move(socket_));
    }
    channel_->deliver_held_messages();
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
    wait_for_sockets(std::span(&request, 1), timeout, deadline_, options().mutex);
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
                deadline_ = now_ns() + to_ns(options().handshake);
                introduce();
            }
            do_and_report(
                [this] {
                    channel_ = setup_.connect(theirs_);
                    // The program knows the channel only after take_channel(), and the handshake
                    // can fail before. Until then, no receive of the program may take a message of
                    // the channel.
                    channel_->hold_messages();
                },
                [this](int error) { send(socket_.get(), static_cast<ConnectResult>(error)); });
            step_ = Step::receive_result;
            return true;
        case Step::receive_result:
            if (!receive(std::as_writable_bytes(std::span(&their_result_, 1)))) {
                return false;
            }
            check_zero(checked_errno(their_result_, "recv"), "ibv_modify_qp",
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
    do_and_report([this] { setup_.create_queue_pairs(); },
                  [this](int error) { send_hello(error); });
}

void Handshake::send_hello(int error) {
    Hello hello = error == 0 ? setup_.hello() : Hello{};
    hello.secret = is_connector_ ? Handle::Secret{} : handle_.listener_secret();
    hello.error = static_cast<std::uint32_t>(error);
    send(socket_.get(), hello);
}

void Handshake::check_hello() {
    ChannelSetup::check(theirs_, "recv");
    if (is_connector_ && !same_secret(theirs_.secret, handle_.listener_secret())) {
        raise(EPROTO, "recv", "the process that listens there did not make this handle");
    }
}

} // namespace rdmabuf::transport::detail
