// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <optional>
#include <utility>

#include <rdmabuf/cm_multicast.hpp>
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/queue_pair.hpp>

#include "connection/cm_async.hpp"
#include "connection/cm_event.hpp"
#include "connection/cm_steps.hpp"

namespace rdmabuf::cm {

using rdmabuf::detail::check_zero;
using rdmabuf::detail::native_of;

/// The state of a MulticastGroup. rdma_cm_id::context points to this object.
class detail::MulticastState final : public AsyncId {
  public:
    explicit MulticastState(void* user_data) : AsyncId(user_data) {}
    MulticastState(const MulticastState&) = delete;
    MulticastState& operator=(const MulticastState&) = delete;
    MulticastState(MulticastState&&) = delete;
    MulticastState& operator=(MulticastState&&) = delete;
    /// Leaves the group. Without rdma_leave_multicast(3), librdmacm keeps memory for the group.
    ~MulticastState() override {
        if (!creator_.is_current()) {
            return;
        }
        try {
            leave();
        } catch (const Error& error) {
            rdmabuf::detail::report_teardown_failure(error.function(), error.error());
        }
    }

    void resolve(const EventChannel& channel, const std::string& group,
                 const std::string& local_host, std::chrono::milliseconds timeout) {
        resolve_address(channel, RDMA_PS_UDP, group, 0, {.local_host = local_host}, timeout);
    }
    void join(const QueuePair& queue_pair, MulticastRole role);
    void leave();

    [[nodiscard]] std::optional<ChannelEvent> handle(Event event) override;

    /// Checks that the event `resolved` was reported. Before this event, the device for the group
    /// is unknown.
    /// @throws Error ENOTCONN if the event was not reported yet
    void check_resolved(const char* function) const {
        if (!is_resolved_) {
            throw Error(ENOTCONN, function, "the device of the group is not resolved yet");
        }
    }
    [[nodiscard]] Destination destination() const;

  private:
    [[nodiscard]] std::optional<EventType> advance(const rdma_cm_event& event);
    void become_member(const rdma_ud_param& param);
    /// Detaches the queue pair from the group if it is attached. @return 0 or an errno value
    [[nodiscard]] int detach() noexcept;

    rdmabuf::detail::CreatorProcess creator_;
    bool is_resolved_ = false;
    const char* function_ = "rdma_resolve_addr";
    /// The queue pair that joins or has joined the group; null before join() and after leave(). Not
    /// owned.
    ibv_qp* queue_pair_ = nullptr;
    /// The protection domain of the queue pair, for the address handle of the group.
    std::optional<ProtectionDomain> pd_;
    MulticastRole role_ = MulticastRole::send_and_receive;
    bool is_attached_ = false;
    ibv_gid gid_{};
    std::uint16_t lid_ = 0;
    /// The address handle of the group; set from RDMA_CM_EVENT_MULTICAST_JOIN until leave().
    std::optional<AddressHandle> address_handle_;
    std::uint32_t remote_queue_pair_ = 0;
    std::uint32_t qkey_ = 0;
};

namespace detail {

void MulticastState::join(const QueuePair& queue_pair, MulticastRole role) {
    constexpr const char* function = "rdma_join_multicast";
    check_resolved(function);
    ibv_qp* const native = native_of(queue_pair, function, "QueuePair");
    if (native->context != id()->verbs || native->qp_type != IBV_QPT_UD) {
        throw Error(
            EINVAL, function,
            "the queue pair has another context or is not UD: create its protection domain on "
            "the context() of the group, even if both contexts have the same device");
    }
    if (queue_pair_ != nullptr) {
        throw Error(EINVAL, function,
                    "a queue pair has joined already: make a MulticastGroup for each queue pair");
    }
    function_ = function;
    if (rdma_join_multicast(id().get(), rdma_get_peer_addr(id().get()), this) != 0) {
        throw failure(step(function), errno);
    }
    queue_pair_ = native;
    pd_ = queue_pair.protection_domain();
    role_ = role;
}

void MulticastState::leave() {
    if (queue_pair_ == nullptr) {
        return;
    }
    check_zero(detach(), "ibv_detach_mcast");
    check_zero(rdma_leave_multicast(id().get(), rdma_get_peer_addr(id().get())),
               "rdma_leave_multicast");
    address_handle_.reset();
    pd_.reset();
    queue_pair_ = nullptr;
}

int MulticastState::detach() noexcept {
    if (!is_attached_) {
        return 0;
    }
    const int error = ibv_detach_mcast(queue_pair_, &gid_, lid_);
    is_attached_ = error != 0;
    return error;
}

std::optional<ChannelEvent> MulticastState::handle(Event event) {
    try {
        const std::optional<EventType> reported = advance(*event);
        return reported ? std::optional(make_event(*reported)) : std::nullopt;
    } catch (const Error& error) {
        return make_failure(error);
    }
}

std::optional<EventType> MulticastState::advance(const rdma_cm_event& event) {
    switch (event.event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            check_status(step(function_), event);
            is_resolved_ = true;
            return EventType::resolved;
        case RDMA_CM_EVENT_MULTICAST_JOIN:
            check_status(step(function_), event);
            become_member(event.param.ud);
            return EventType::multicast_joined;
        case RDMA_CM_EVENT_MULTICAST_ERROR:
            throw failure(step(function_), event.status < 0 ? -event.status : EIO);
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            return EventType::device_removed;
        case RDMA_CM_EVENT_ADDR_CHANGE:
        case RDMA_CM_EVENT_TIMEWAIT_EXIT:
            return std::nullopt;
        default:
            throw failure(step(function_), event);
    }
}

void MulticastState::become_member(const rdma_ud_param& param) {
    const ibv_ah_attr& address = param.ah_attr;
    AddressHandle handle(
        *pd_, QueuePairAddress{.gid = Gid::from_native(address.grh.dgid), .lid = address.dlid},
        AddressHandleOptions{.port = address.port_num,
                             .gid_index = address.grh.sgid_index,
                             .service_level = address.sl,
                             .traffic_class = address.grh.traffic_class,
                             .hop_limit = address.grh.hop_limit,
                             .flow_label = address.grh.flow_label,
                             .static_rate = static_cast<ibv_rate>(address.static_rate),
                             .src_path_bits = address.src_path_bits});
    gid_ = address.grh.dgid;
    lid_ = address.dlid;
    if (role_ == MulticastRole::send_and_receive) {
        check_zero(ibv_attach_mcast(queue_pair_, &gid_, lid_), "ibv_attach_mcast");
        is_attached_ = true;
    }
    address_handle_ = std::move(handle);
    remote_queue_pair_ = param.qp_num;
    qkey_ = param.qkey;
}

Destination MulticastState::destination() const {
    if (!address_handle_) {
        throw Error(
            ENOTCONN, "MulticastGroup::destination",
            "the group has not been joined: call join(), and wait for the event multicast_joined");
    }
    return {.ah = address_handle_->native(), .queue_pair = remote_queue_pair_, .qkey = qkey_};
}

} // namespace detail

namespace {

detail::MulticastState& state_of(const std::unique_ptr<detail::MulticastState>& group,
                                 const char* function) {
    if (group == nullptr) {
        rdmabuf::detail::raise_closed(function, "MulticastGroup");
    }
    return *group;
}

} // namespace

MulticastGroup::MulticastGroup(const EventChannel& channel, const std::string& group,
                               const std::string& local_host, std::chrono::milliseconds timeout,
                               void* user_data)
    : group_(std::make_unique<detail::MulticastState>(user_data)) {
    group_->resolve(channel, group, local_host, timeout);
}

MulticastGroup::MulticastGroup(MulticastGroup&&) noexcept = default;
MulticastGroup& MulticastGroup::operator=(MulticastGroup&&) noexcept = default;
MulticastGroup::~MulticastGroup() = default;

Context MulticastGroup::context() const {
    const detail::MulticastState& state = state_of(group_, "MulticastGroup::context");
    state.check_resolved("MulticastGroup::context");
    return Context::borrow(state.id()->verbs);
}

std::uint8_t MulticastGroup::port() const {
    const detail::MulticastState& state = state_of(group_, "MulticastGroup::port");
    state.check_resolved("MulticastGroup::port");
    return state.id()->port_num;
}

void MulticastGroup::join(const QueuePair& queue_pair, MulticastRole role) {
    state_of(group_, "rdma_join_multicast").join(queue_pair, role);
}

Destination MulticastGroup::destination() const {
    return state_of(group_, "MulticastGroup::destination").destination();
}

void MulticastGroup::leave() {
    state_of(group_, "rdma_leave_multicast").leave();
}

rdma_cm_id* MulticastGroup::native() const noexcept {
    return group_ != nullptr ? group_->id().get() : nullptr;
}

} // namespace rdmabuf::cm
