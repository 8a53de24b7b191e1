// SPDX-License-Identifier: BSD-3-Clause
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <utility>
#include <vector>

#include <rdmabuf/cm_channel.hpp>
#include <rdmabuf/detail/check.hpp>

#include "connection/cm_async.hpp"
#include "connection/cm_event.hpp"
#include "connection/cm_steps.hpp"

namespace rdmabuf::cm {

using rdmabuf::detail::check_zero;
using State = AsyncConnection::State;

/// The state of an AsyncConnection. rdma_cm_id::context points to this object.
class detail::ConnectionState final : public AsyncId {
  public:
    /// Creates the state of a connection that this side starts.
    ConnectionState(std::chrono::milliseconds timeout, void* user_data)
        : AsyncId(user_data), timeout_(timeout) {}
    /// Creates the state of a connection that a peer has requested. If the constructor throws, the
    /// caller still owns @p id.
    ConnectionState(Id& id, const rdma_conn_param& offer)
        : AsyncId(nullptr),
          state_(State::requested),
          private_data_(copy_private_data(offer)),
          served_by_peer_(offer.initiator_depth),
          started_by_peer_(offer.responder_resources) {
        id->context = static_cast<AsyncId*>(this);
        set_id(std::move(id));
    }

    void resolve(const EventChannel& channel, const std::string& host, std::uint16_t port,
                 const RouteOptions& options) {
        resolve_address(channel, RDMA_PS_TCP, host, port, options, timeout_);
    }
    void connect(PreparedQueuePair prepared, std::span<const std::byte> private_data);
    void accept(PreparedQueuePair prepared, std::span<const std::byte> private_data);
    void reject(std::span<const std::byte> private_data);
    void disconnect();

    [[nodiscard]] std::optional<ChannelEvent> handle(Event event) override;

    [[nodiscard]] State state() const noexcept { return state_; }
    [[nodiscard]] const std::vector<std::byte>& private_data() const noexcept {
        return private_data_;
    }
    [[nodiscard]] QueuePair& queue_pair() {
        if (!queue_pair_) {
            throw_wrong_state("AsyncConnection::queue_pair", "established");
        }
        return *queue_pair_;
    }
    /// Checks that the connection is in one of the states @p wanted.
    /// @throws Error ENOTCONN if the connection is in another state
    void check_state(const char* function, std::initializer_list<State> wanted) const {
        if (std::find(wanted.begin(), wanted.end(), state_) == wanted.end()) {
            throw_wrong_state(function, to_string(*wanted.begin()));
        }
    }

  private:
    [[noreturn]] void throw_wrong_state(const char* function, const char* wanted) const {
        throw Error(ENOTCONN, function,
                    std::string("the connection is ") + to_string(state_) + ", not " + wanted);
    }
    /// Calls the function @p step. If @p step throws, sets the state of the connection to `closed`,
    /// destroys the prepared queue pair and rethrows the exception.
    template <class StepCall>
    void close_on_error(const StepCall& step);
    /// Advances the state of the connection after @p event.
    /// @return the event for the program; std::nullopt if @p event does not concern the program
    /// @throws Error if the connection has failed
    [[nodiscard]] std::optional<EventType> advance(const rdma_cm_event& event);
    void resolve_route();
    void become_connected();
    void become_disconnected();
    /// Returns the current step (the name of its function and the address of the peer) for error
    /// messages.
    [[nodiscard]] Step step() const { return AsyncId::step(function_); }

    State state_ = State::resolving;
    const char* function_ = "rdma_resolve_addr";
    std::chrono::milliseconds timeout_{};
    std::vector<std::byte> private_data_;
    /// Owns the queue pair from connect() or accept() until the connection is established or has
    /// failed. `queue_pair_` then owns it, or it is destroyed.
    std::optional<PreparedQueuePair> prepared_;
    /// Owns the queue pair after the connection is established.
    std::optional<QueuePair> queue_pair_;
    bool is_accepting_ = false;
    /// For a connection that the peer has requested: maximum number of RDMA reads and atomics that
    /// the peer can serve at the same time.
    std::uint8_t served_by_peer_ = 0;
    /// For a connection that the peer has requested: maximum number of RDMA reads and atomics that
    /// the peer has in flight at the same time.
    std::uint8_t started_by_peer_ = 0;
};

/// The state of an AsyncListener. rdma_cm_id::context points to this object.
class detail::ListenerState final : public AsyncId {
  public:
    explicit ListenerState(void* user_data) : AsyncId(user_data) {}

    void listen(const EventChannel& channel, const std::string& host, std::uint16_t port,
                int backlog) {
        set_id(detail::listen(host, port, backlog, [&] { return make_id(channel, RDMA_PS_TCP); }));
    }

    [[nodiscard]] std::optional<ChannelEvent> handle(Event event) override;
};

namespace detail {

template <class StepCall>
void ConnectionState::close_on_error(const StepCall& step) {
    try {
        step();
    } catch (...) {
        state_ = State::closed;
        prepared_.reset();
        throw;
    }
}

void ConnectionState::connect(PreparedQueuePair prepared, std::span<const std::byte> private_data) {
    constexpr const char* function = "rdma_connect";
    check_state(function, {State::resolved});
    check_private_data(private_data.size(), connect_data_limit, function);
    check_prepared(prepared, id(), function);
    prepared_.emplace(std::move(prepared));
    rdma_conn_param param = conn_param(*prepared_, private_data);
    function_ = function;
    state_ = State::connecting;
    close_on_error([&] {
        offer_ece(id(), *prepared_);
        if (rdma_connect(id().get(), &param) != 0) {
            throw failure(step(), errno);
        }
    });
}

void ConnectionState::accept(PreparedQueuePair prepared, std::span<const std::byte> private_data) {
    constexpr const char* function = "rdma_accept";
    check_state(function, {State::requested});
    check_private_data(private_data.size(), accept_data_limit, function);
    check_prepared(prepared, id(), function);
    prepared_.emplace(std::move(prepared));
    rdma_conn_param param = conn_param(*prepared_, private_data);
    param.responder_resources = std::min(param.responder_resources, started_by_peer_);
    param.initiator_depth = std::min(param.initiator_depth, served_by_peer_);
    function_ = function;
    is_accepting_ = true;
    state_ = State::connecting;
    close_on_error([&] {
        explain_withdrawal(id(), peer_of(id()), [&] {
            make_ready(id(), *prepared_);
            offer_ece(id(), *prepared_);
            if (rdma_accept(id().get(), &param) != 0) {
                throw failure(step(), errno);
            }
        });
    });
}

void ConnectionState::reject(std::span<const std::byte> private_data) {
    constexpr const char* function = "rdma_reject";
    check_state(function, {State::requested});
    check_private_data(private_data.size(), reject_data_limit, function);
    state_ = State::closed;
    check_zero(rdma_reject(id().get(), private_data.data(),
                           static_cast<std::uint8_t>(private_data.size())),
               function);
}

void ConnectionState::disconnect() {
    constexpr const char* function = "rdma_disconnect";
    check_state(function, {State::established});
    function_ = function;
    state_ = State::disconnecting;
    close_on_error([&] {
        const int error = rdma_disconnect(id().get()) == 0 ? 0 : errno;
        queue_pair_->abort();
        check_zero(error, function);
    });
}

std::optional<ChannelEvent> ConnectionState::handle(Event event) {
    try {
        const std::optional<EventType> reported = advance(*event);
        return reported ? std::optional(make_event(*reported)) : std::nullopt;
    } catch (const Error& error) {
        state_ = State::closed;
        prepared_.reset();
        if (is_accepting_ && error.error() == ECONNREFUSED) {
            return make_failure(
                Error(ECONNRESET, function_,
                      peer_of(id()) + " withdrew its connection request before it was accepted"));
        }
        return make_failure(error);
    }
}

std::optional<EventType> ConnectionState::advance(const rdma_cm_event& event) {
    if (state_ == State::closed && event.event != RDMA_CM_EVENT_DEVICE_REMOVAL) {
        return std::nullopt;
    }
    switch (event.event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            check_status(step(), event);
            resolve_route();
            return std::nullopt;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            check_status(step(), event);
            state_ = State::resolved;
            return EventType::resolved;
        case RDMA_CM_EVENT_CONNECT_RESPONSE:
            check_status(step(), event);
            private_data_ = copy_private_data(event.param.conn);
            make_ready(id(), *prepared_);
            check_zero(rdma_establish(id().get()), "rdma_establish");
            become_connected();
            return EventType::established;
        case RDMA_CM_EVENT_ESTABLISHED:
            check_status(step(), event);
            if (!is_accepting_) {
                // This code runs only on iWARP, at the end that called rdma_connect(3): the kernel
                // has connected the queue pair without a CONNECT_RESPONSE event.
                private_data_ = copy_private_data(event.param.conn);
            }
            become_connected();
            return EventType::established;
        case RDMA_CM_EVENT_DISCONNECTED:
            if (state_ != State::established && state_ != State::disconnecting) {
                throw failure(step(), event);
            }
            become_disconnected();
            return EventType::disconnected;
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            state_ = State::closed;
            return EventType::device_removed;
        case RDMA_CM_EVENT_ADDR_CHANGE:
        case RDMA_CM_EVENT_TIMEWAIT_EXIT:
            return std::nullopt;
        default:
            throw failure(step(), event);
    }
}

void ConnectionState::resolve_route() {
    function_ = "rdma_resolve_route";
    if (rdma_resolve_route(id().get(), as_int(timeout_)) != 0) {
        throw failure(step(), errno);
    }
}

void ConnectionState::become_connected() {
    queue_pair_.emplace(std::move(*prepared_).assume_connected());
    prepared_.reset();
    state_ = State::established;
}

void ConnectionState::become_disconnected() {
    if (state_ == State::established) {
        // This call replies to the disconnection by the peer. An error is ignored, because the
        // connection has ended in any case.
        static_cast<void>(rdma_disconnect(id().get()));
        queue_pair_->abort();
    }
    state_ = State::closed;
}

std::optional<ChannelEvent> ListenerState::handle(Event event) {
    // The id is declared before the event, so that the id is destroyed after the event is
    // acknowledged, even if an exception is thrown. rdma_destroy_id(3) waits for this
    // acknowledgement.
    Id id;
    const Event owned = std::move(event);
    if (owned->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        return make_event(EventType::device_removed);
    }
    if (owned->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
        return std::nullopt;
    }
    id = Id(owned->id, Id::deleter_type::holding(this->id().get_deleter().parent<0>(
                           "EventChannel::next_event", "AsyncListener")));
    ChannelEvent reported = make_event(EventType::connect_request);
    reported.request = AsyncConnection(std::make_unique<ConnectionState>(id, owned->param.conn));
    return reported;
}

/// Returns the object that @p state points to.
/// @throws Error EBADF if @p state is null, because the object of the program was moved from
template <class StatePointer>
auto& state_of(const StatePointer& state, const char* function, const char* type) {
    if (state == nullptr) {
        rdmabuf::detail::raise_closed(function, type);
    }
    return *state;
}

} // namespace detail

namespace {

detail::ConnectionState& state_of(const std::unique_ptr<detail::ConnectionState>& connection,
                                  const char* function) {
    return detail::state_of(connection, function, "AsyncConnection");
}

} // namespace

AsyncConnection::AsyncConnection(const EventChannel& channel, const std::string& host,
                                 std::uint16_t port, std::chrono::milliseconds timeout,
                                 void* user_data, const RouteOptions& options)
    : connection_(std::make_unique<detail::ConnectionState>(timeout, user_data)) {
    connection_->resolve(channel, host, port, options);
}

AsyncConnection::AsyncConnection(std::unique_ptr<detail::ConnectionState> connection) noexcept
    : connection_(std::move(connection)) {}

AsyncConnection::AsyncConnection(AsyncConnection&&) noexcept = default;
AsyncConnection& AsyncConnection::operator=(AsyncConnection&&) noexcept = default;
AsyncConnection::~AsyncConnection() = default;

AsyncConnection::State AsyncConnection::state() const {
    return state_of(connection_, "AsyncConnection::state").state();
}

Context AsyncConnection::context() const {
    constexpr const char* function = "AsyncConnection::context";
    ibv_context* const context = state_of(connection_, function).id()->verbs;
    if (context == nullptr) {
        connection_->check_state(function, {State::resolved});
        rdmabuf::detail::raise_closed(function, "AsyncConnection");
    }
    return Context::borrow(context);
}

std::uint8_t AsyncConnection::port() const {
    return state_of(connection_, "AsyncConnection::port").id()->port_num;
}

std::span<const std::byte> AsyncConnection::private_data() const {
    return state_of(connection_, "AsyncConnection::private_data").private_data();
}

void AsyncConnection::connect(PreparedQueuePair prepared, std::span<const std::byte> private_data) {
    state_of(connection_, "rdma_connect").connect(std::move(prepared), private_data);
}

void AsyncConnection::accept(PreparedQueuePair prepared, std::span<const std::byte> private_data) {
    state_of(connection_, "rdma_accept").accept(std::move(prepared), private_data);
}

void AsyncConnection::reject(std::span<const std::byte> private_data) {
    state_of(connection_, "rdma_reject").reject(private_data);
}

void AsyncConnection::disconnect() {
    state_of(connection_, "rdma_disconnect").disconnect();
}

QueuePair& AsyncConnection::queue_pair() {
    return state_of(connection_, "AsyncConnection::queue_pair").queue_pair();
}

void* AsyncConnection::user_data() const {
    return state_of(connection_, "AsyncConnection::user_data").user_data();
}

void AsyncConnection::set_user_data(void* user_data) {
    state_of(connection_, "AsyncConnection::set_user_data").set_user_data(user_data);
}

rdma_cm_id* AsyncConnection::native() const noexcept {
    return connection_ != nullptr ? connection_->id().get() : nullptr;
}

AsyncListener::AsyncListener(const EventChannel& channel, const std::string& host,
                             std::uint16_t port, int backlog, void* user_data)
    : listener_(std::make_unique<detail::ListenerState>(user_data)) {
    listener_->listen(channel, host, port, backlog);
}

AsyncListener::AsyncListener(AsyncListener&&) noexcept = default;
AsyncListener& AsyncListener::operator=(AsyncListener&&) noexcept = default;
AsyncListener::~AsyncListener() = default;

std::uint16_t AsyncListener::port() const {
    const auto& state = detail::state_of(listener_, "AsyncListener::port", "AsyncListener");
    return ntohs(rdma_get_src_port(state.id().get()));
}

rdma_cm_id* AsyncListener::native() const noexcept {
    return listener_ != nullptr ? listener_->id().get() : nullptr;
}

EventChannel::EventChannel() : handle_(detail::make_channel()) {}

std::optional<ChannelEvent> EventChannel::next_event() {
    return wait(std::chrono::milliseconds(0));
}

std::optional<ChannelEvent> EventChannel::wait(std::chrono::milliseconds timeout) {
    rdma_event_channel* const channel =
        rdmabuf::detail::native_of(*this, "rdma_get_cm_event", "EventChannel");
    const rdmabuf::detail::Deadline deadline(timeout);
    while (detail::Event event = detail::next_event(channel, deadline.left())) {
        detail::AsyncId& id = detail::AsyncId::of(*event);
        if (std::optional<ChannelEvent> reported = id.handle(std::move(event))) {
            return reported;
        }
    }
    return std::nullopt;
}

int EventChannel::fd() const {
    return rdmabuf::detail::native_of(*this, "EventChannel::fd", "EventChannel")->fd;
}

const char* to_string(EventType type) noexcept {
    switch (type) {
        case EventType::resolved:
            return "resolved";
        case EventType::connect_request:
            return "connect_request";
        case EventType::established:
            return "established";
        case EventType::disconnected:
            return "disconnected";
        case EventType::failed:
            return "failed";
        case EventType::device_removed:
            return "device_removed";
        case EventType::multicast_joined:
            return "multicast_joined";
    }
    return "unknown";
}

const char* to_string(AsyncConnection::State state) noexcept {
    switch (state) {
        case State::resolving:
            return "resolving";
        case State::resolved:
            return "resolved";
        case State::requested:
            return "requested";
        case State::connecting:
            return "connecting";
        case State::established:
            return "established";
        case State::disconnecting:
            return "disconnecting";
        case State::closed:
            return "closed";
    }
    return "unknown";
}

} // namespace rdmabuf::cm
