// SPDX-License-Identifier: BSD-3-Clause
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
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

Rail::Rail(ProtectionDomain protection_domain, std::uint32_t peer_depth, std::uint32_t self_depth,
           unsigned cq_depth)
    : pd(std::move(protection_domain)),
      cq(pd.context(), {.depth = cq_depth}),
      to_peer(peer_depth),
      to_self(self_depth) {}

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

Handshake::~Handshake() = default;

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
    Hello hello = {.rails = static_cast<std::uint16_t>(rails_.size()),
                   .secret = is_connector_ ? Handle::Secret{} : handle_.listener_secret(),
                   .error = static_cast<std::uint32_t>(error),
                   .eager_limit = endpoint_->options.eager_limit,
                   .eager_slots = endpoint_->options.eager_slots,
                   .max_message_size = endpoint_->max_message};
    if (error == 0) {
        hello.probe_rkey = rails_[0].probe->rkey();
        hello.probe_address = reinterpret_cast<std::uintptr_t>(arena_->scratch());
        for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
            hello.addresses[rail] = rails_[rail].prepared->address().encode();
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
    if (theirs_.rails == 0 || theirs_.rails > max_rails || theirs_.eager_slots < 4 ||
        theirs_.max_message_size == 0) {
        raise(EPROTO, "recv", "the limits that the peer sent are impossible");
    }
}

void Handshake::create_queue_pairs() {
    const EndpointOptions& all = endpoint_->options;
    arena_.emplace(all.eager_limit, all.eager_slots + control_slots + credit_slots);
    const std::uint32_t receives = arena_->receive_slots();
    const std::uint32_t sends = endpoint_->max_send_wr;
    rails_.reserve(endpoint_->pds.size());
    for (const ProtectionDomain& pd : endpoint_->pds) {
        const bool first = rails_.empty();
        const std::uint32_t selves = std::min(max_self_depth, sends);
        Rail& rail =
            rails_.emplace_back(pd, sends, selves, sends + selves + (first ? receives : 0));
        // The loopback queue pair reads messages from the bounce buffers (arena). The peer gets no
        // key of the arena; it gets the rkey of the scratch line, whose contents are not used.
        rail.arena.emplace(
            pd, arena_->data(), arena_->size(),
            MemoryRegionOptions{.access = Access::local_write | Access::remote_read});
        rail.probe.emplace(
            pd, arena_->scratch(), Arena::line,
            MemoryRegionOptions{.access = Access::local_write | Access::remote_write});
        QueuePairOptions options = {.send_cq = rail.cq,
                                    .recv_cq = rail.cq,
                                    .max_send_wr = sends,
                                    .max_recv_wr = first ? receives : 1,
                                    .max_send_sge = 2,
                                    .max_inline_data = all.inline_data,
                                    .extended = ExtendedInterface::off,
                                    .port = all.port,
                                    .timeout = all.ack_timeout,
                                    .retry_count = all.retry_count};
        prepare_peer(rail, options);
        options.max_send_wr = selves;
        options.max_recv_wr = 1;
        options.max_inline_data = 0;
        PreparedQueuePair self(pd, options);
        const QueuePairAddress address = self.address();
        rail.self.emplace(std::move(self).connect(address));
    }
    const Rail& rail = rails_.front();
    for (std::uint32_t slot = 0; slot < receives; ++slot) {
        rail.prepared
            ->post_recv({.addr = reinterpret_cast<std::uintptr_t>(arena_->receive_slot(slot)),
                         .length = arena_->receive_size(),
                         .lkey = rail.arena->lkey()},
                        WorkId{.work = Work::receive, .number = slot}.encode())
            .throw_if_failed("ibv_post_recv");
    }
}

void Handshake::prepare_peer(Rail& rail, QueuePairOptions& options) {
    try {
        rail.prepared.emplace(rail.pd, options);
        return;
    } catch (const Error&) {
        if (options.max_inline_data == 0) {
            throw;
        }
    }
    // The device may support less inline data or none: create the queue pair without inline data.
    inline_data_ = options.max_inline_data = 0;
    rail.prepared.emplace(rail.pd, options);
}

void Handshake::connect_queue_pairs() {
    while (rails_.size() > theirs_.rails) {
        rails_.pop_back();
    }
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
        const auto address = QueuePairAddress::decode(theirs_.addresses[rail]);
        if (!address) {
            address.error_info().raise();
        }
        rails_[rail].peer.emplace(std::move(*rails_[rail].prepared).connect(*address));
        rails_[rail].prepared.reset();
    }
}

} // namespace rdmabuf::transport::detail
