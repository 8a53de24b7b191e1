// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/queue_pair.hpp>

#include "queues/mlx5_queue_pair.hpp"
#include "queues/srd_queue_pair.hpp"

namespace rdmabuf {

int detail::DestroyQp::call(ibv_qp* qp) noexcept {
    return ibv_destroy_qp(qp);
}

namespace {

using Handle = detail::QueuePairHandle;

constexpr const char* modify_qp = "ibv_modify_qp";
constexpr std::uint8_t retry_without_limit = 7;

std::uint32_t random_psn() {
    std::uint32_t value = 0;
    detail::check_zero(getrandom(&value, sizeof(value), 0) == sizeof(value) ? 0 : errno,
                       "getrandom");
    return value & 0xffffffU;
}

/// Returns true if queue pairs of this type are not connected: each send request contains its
/// destination.
bool is_datagram(QueuePairType type) noexcept {
    return type == QueuePairType::unreliable_datagram ||
           type == QueuePairType::scalable_reliable_datagram;
}

/// Returns the type of the peer of a connected queue pair: xrc_receive for xrc_send, xrc_send for
/// xrc_receive, otherwise the same type.
QueuePairType peer_type(QueuePairType type) noexcept {
    switch (type) {
        case QueuePairType::xrc_send:
            return QueuePairType::xrc_receive;
        case QueuePairType::xrc_receive:
            return QueuePairType::xrc_send;
        default:
            return type;
    }
}

/// Returns true if queue pairs of this type have the attributes max_dest_rd_atomic and
/// min_rnr_timer.
bool is_reliable_target(QueuePairType type) noexcept {
    return type == QueuePairType::reliable_connected || type == QueuePairType::xrc_receive;
}

/// Returns true if queue pairs of this type must have the attributes timeout, retry_cnt, rnr_retry
/// and max_rd_atomic.
bool is_reliable_initiator(QueuePairType type) noexcept {
    return type == QueuePairType::reliable_connected || type == QueuePairType::xrc_send;
}

/// The limits of a device, which are queried before a queue pair is created.
struct DeviceLimits {
    DeviceAttributes device;
    /// The SRD limits; empty unless the queue pair has the type SRD.
    std::optional<SrdAttributes> srd;
};

/// Queries the limits of the device.
/// @throws Error EOPNOTSUPP if an SRD queue pair is requested, and the device does not support SRD
///         or QueuePairOptions::access is set; errno values of failed queries
DeviceLimits query_limits(const Context& context, const QueuePairOptions& options) {
    std::optional<SrdAttributes> srd;
    if (options.type == QueuePairType::scalable_reliable_datagram) {
        srd = context.srd_attributes();
        detail::check_srd_access(options.access);
    }
    return {context.attributes(), srd};
}

/// Returns the IBV_QP_EX_WITH_* flags of the operations that the queue pair type supports: sends
/// and writes (each also with immediate data), reads and atomics. Atomics depend also on the
/// device, as do reads and writes of SRD. Not called for QueuePairType::xrc_receive.
std::uint64_t extended_operations(QueuePairType type, const DeviceLimits& limits) noexcept {
    if (limits.srd) {
        return detail::srd_operations(*limits.srd);
    }
    const bool atomics = limits.device.atomics();
    constexpr std::uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    constexpr std::uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    constexpr std::uint64_t atomic =
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    switch (type) {
        case QueuePairType::unreliable_datagram:
            return send;
        case QueuePairType::unreliable_connected:
            return send | write;
        case QueuePairType::reliable_connected:
        case QueuePairType::xrc_send:
        case QueuePairType::xrc_receive:
        case QueuePairType::scalable_reliable_datagram:
            break;
    }
    return send | write | IBV_QP_EX_WITH_RDMA_READ | (atomics ? atomic : 0);
}

Access default_access(QueuePairType type, bool atomics) noexcept {
    switch (type) {
        case QueuePairType::unreliable_datagram:
        case QueuePairType::scalable_reliable_datagram:
        case QueuePairType::xrc_send:
            return Access::local_read;
        case QueuePairType::unreliable_connected:
            return Access::local_write | Access::remote_write;
        case QueuePairType::reliable_connected:
        case QueuePairType::xrc_receive:
            break;
    }
    return Access::local_write | Access::remote_write | Access::remote_read |
           (atomics ? Access::remote_atomic : Access::local_read);
}

/// Returns the hint for a failed creation of a queue pair, for example the device limits that the
/// options exceed. The errno value of the driver, EINVAL or ENOMEM, does not name the limit.
std::string explain_create(const ProtectionDomain& pd, const DeviceLimits& limits,
                           const QueuePairOptions& options) {
    std::string hint = std::string(to_string(options.type)) + " queue pair";
    if (!is_datagram(options.type) && pd.context().srd()) {
        return hint + ": " + pd.context().device_name() +
               " is an EFA device, which has SRD queue pairs instead: use "
               "QueuePairType::scalable_reliable_datagram, and an AddressHandle for each peer";
    }
    const auto compare = [&hint](const char* name, std::uint32_t asked, std::uint32_t limit) {
        if (limit > 0 && asked > limit) {
            hint.append(", ").append(name).append(" ").append(std::to_string(asked));
            hint.append(" is above the device's limit of ").append(std::to_string(limit));
        }
    };
    if (limits.srd) {
        compare("max_send_wr", options.max_send_wr, limits.srd->max_send_wr);
        compare("max_recv_wr", options.max_recv_wr, limits.srd->max_recv_wr);
        compare("max_send_sge", options.max_send_sge, limits.srd->max_send_sge);
        compare("max_recv_sge", options.max_recv_sge, limits.srd->max_recv_sge);
        compare("max_inline_data", options.max_inline_data, limits.srd->max_inline_data);
        return hint;
    }
    const auto value = [](int limit) { return static_cast<std::uint32_t>(std::max(limit, 0)); };
    const ibv_device_attr& device = limits.device.native.orig_attr;
    compare("max_send_wr", options.max_send_wr, value(device.max_qp_wr));
    compare("max_recv_wr", options.max_recv_wr, value(device.max_qp_wr));
    compare("max_send_sge", options.max_send_sge, value(device.max_sge));
    compare("max_recv_sge", options.max_recv_sge, value(device.max_sge));
    if (options.max_inline_data != 0) {
        // The error text contains the requested max_inline_data, but not its limit, because no
        // device attribute contains this limit.
        hint.append(", max_inline_data ").append(std::to_string(options.max_inline_data));
    }
    if (options.out_of_order_placement) {
        hint.append(
            ", with out-of-order placement, which needs an mlx5 device that has it and "
            "rdma-core 55");
    }
    return hint;
}

ibv_qp_init_attr_ex init_attributes(const ProtectionDomain& pd, const QueuePairOptions& options) {
    constexpr const char* function = "ibv_create_qp";
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = static_cast<ibv_qp_type>(options.type);
    attributes.sq_sig_all = options.signal_all ? 1 : 0;
    if ((options.type == QueuePairType::xrc_receive) != (options.xrc_domain != nullptr)) {
        throw Error(
            EINVAL, function,
            "QueuePairOptions::xrc_domain must be set for queue pairs of the type xrc_receive, and "
            "only for them");
    }
    if (options.xrc_domain != nullptr) {
        attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        attributes.xrcd = detail::native_of(*options.xrc_domain, function, "XrcDomain");
        return attributes;
    }
    attributes.send_cq = detail::native_of(options.send_cq, function, "send CompletionQueue");
    attributes.recv_cq = detail::native_of(options.recv_cq, function, "receive CompletionQueue");
    attributes.srq = options.srq != nullptr
                         ? detail::native_of(*options.srq, function, "SharedReceiveQueue")
                         : nullptr;
    attributes.cap.max_send_wr = options.max_send_wr;
    attributes.cap.max_recv_wr = options.srq != nullptr ? 0 : options.max_recv_wr;
    attributes.cap.max_send_sge = options.max_send_sge;
    attributes.cap.max_recv_sge = options.srq != nullptr ? 0 : options.max_recv_sge;
    attributes.cap.max_inline_data = options.max_inline_data;
    if (options.type == QueuePairType::xrc_send) {
        attributes.recv_cq = nullptr;
        attributes.cap.max_recv_wr = 0;
        attributes.cap.max_recv_sge = 0;
    }
    attributes.pd = detail::native_of(pd, function, "ProtectionDomain");
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    return attributes;
}

struct Created {
    ibv_qp* qp;
    bool extended;
    ibv_qp_cap capacities;
};

/// Creates an SRD queue pair with efadv_create_qp_ex(3), and other queue pairs with
/// ibv_create_qp_ex(3). On mlx5 devices, calls mlx5dv_create_qp(3) instead if the options request
/// out-of-order placement, or, except for UD queue pairs, disable scatter-to-CQE (libmlx5 then does
/// not copy small payloads by the CPU). Returns null and sets errno on failure: EOPNOTSUPP for
/// out-of-order placement without mlx5dv_create_qp(3).
ibv_qp* create_native(const ProtectionDomain& pd, const QueuePairOptions& options,
                      ibv_qp_init_attr_ex& attributes) {
    ibv_context* const context = pd.context().native();
    if (options.type == QueuePairType::scalable_reliable_datagram &&
        !options.out_of_order_placement) {
        errno = 0;
        return detail::create_srd_queue_pair(context, &attributes);
    }
    // mlx5 has no scatter-to-CQE for unreliable datagrams.
    const bool is_connected = options.type != QueuePairType::unreliable_datagram;
    const detail::Mlx5QueuePairFlags flags{
        .disable_scatter_to_cqe = is_connected && !options.scatter_to_cqe,
        .out_of_order_placement = options.out_of_order_placement};
    errno = 0;
    if ((flags.disable_scatter_to_cqe || flags.out_of_order_placement) &&
        detail::has_mlx5_create_qp(context->device)) {
        return detail::mlx5_create_qp(context, &attributes, flags);
    }
    if (flags.out_of_order_placement) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    return ibv_create_qp_ex(context, &attributes);
}

Created create(const ProtectionDomain& pd, const QueuePairOptions& options,
               const DeviceLimits& limits) {
    ibv_qp_init_attr_ex attributes = init_attributes(pd, options);
    if (options.extended != ExtendedInterface::off && options.type != QueuePairType::xrc_receive) {
        attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.send_ops_flags =
            extended_operations(options.type, limits) | options.batch_operations;
        ibv_qp* const qp = create_native(pd, options, attributes);
        if (qp != nullptr) {
            return {qp, true, attributes.cap};
        }
        if (options.extended == ExtendedInterface::required) {
            detail::check_pointer(qp, limits.srd ? detail::create_srd_function : "ibv_create_qp_ex",
                                  [&](int) {
                                      return explain_create(pd, limits, options) +
                                             ", with the ibv_wr_* interface required";
                                  });
        }
    }
    // The attributes are set again, because the failed creation may have changed the requested
    // limits.
    attributes = init_attributes(pd, options);
    ibv_qp* const qp =
        detail::check_pointer(create_native(pd, options, attributes),
                              limits.srd ? detail::create_srd_function : "ibv_create_qp",
                              [&](int) { return explain_create(pd, limits, options); });
    return {qp, false, attributes.cap};
}

template <class Hint>
void modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask, const Hint& hint) {
    if (qp == nullptr) {
        detail::raise_closed(modify_qp, "queue pair");
    }
    detail::check_zero(ibv_modify_qp(qp, &attributes, mask), modify_qp, hint);
}

ibv_qp_attr query(ibv_qp* qp, int mask) {
    if (qp == nullptr) {
        detail::raise_closed("ibv_query_qp", "queue pair");
    }
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    detail::check_zero(ibv_query_qp(qp, &attributes, mask, &init), "ibv_query_qp");
    return attributes;
}

} // namespace

ibv_qp_state QueuePair::state() const {
    return query(native(), IBV_QP_STATE).qp_state;
}

QueuePair QueuePair::adopt(const ProtectionDomain& pd, const CompletionQueue& send_cq,
                           const CompletionQueue& recv_cq, ibv_qp* qp, ibv_qp_ex* extended) {
    return {Handle(qp, Handle::deleter_type::holding(
                           pd, send_cq, recv_cq, detail::SharedReceiveQueueHandle(), std::nullopt)),
            extended};
}

QueuePair QueuePair::borrow(ibv_qp* qp, ibv_qp_ex* extended) {
    if (qp == nullptr) {
        return {Handle(), nullptr};
    }
    return {Handle(qp, Handle::deleter_type::borrowing(
                           ProtectionDomain::borrow(qp->pd), CompletionQueue::borrow(qp->send_cq),
                           CompletionQueue::borrow(qp->recv_cq), detail::SharedReceiveQueueHandle(),
                           std::nullopt)),
            extended};
}

QueuePair QueuePair::open(const XrcDomain& domain, std::uint32_t number) {
    constexpr const char* function = "ibv_open_qp";
    ibv_qp_open_attr attributes{};
    attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attributes.qp_num = number;
    attributes.xrcd = detail::native_of(domain, function, "XrcDomain");
    attributes.qp_type = IBV_QPT_XRC_RECV;
    errno = 0;
    ibv_qp* const qp = detail::check_pointer(
        ibv_open_qp(attributes.xrcd->context, &attributes), function, [&](int error) {
            return error == EINVAL ? "the XRC domain has no receive queue pair with the number " +
                                         std::to_string(number)
                                   : std::string();
        });
    return {Handle(qp, Handle::deleter_type::holding(ProtectionDomain::borrow(nullptr),
                                                     CompletionQueue::borrow(nullptr),
                                                     CompletionQueue::borrow(nullptr),
                                                     detail::SharedReceiveQueueHandle(), domain)),
            nullptr};
}

ibv_qp_attr QueuePair::attributes(int mask) const {
    return query(native(), mask);
}

bool QueuePair::is_data_in_order(ibv_wr_opcode operation) const {
    constexpr const char* function = "ibv_query_qp_data_in_order";
    ibv_qp* const qp = detail::native_of(*this, function, "QueuePair");
    // The function is looked up at run time, because older versions of rdma-core do not have it.
    using Query = int(ibv_qp*, ibv_wr_opcode, std::uint32_t);
    auto* const query = reinterpret_cast<Query*>(::dlsym(RTLD_DEFAULT, function));
    return query != nullptr && query(qp, operation, 0) == 1;
}

void QueuePair::modify(ibv_qp_attr attributes, int mask) {
    rdmabuf::modify(native(), attributes, mask, std::string_view());
}

void QueuePair::abort() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    rdmabuf::modify(native(), attributes, IBV_QP_STATE, std::string_view("to ERR"));
}

PreparedQueuePair::PreparedQueuePair(const ProtectionDomain& pd, const QueuePairOptions& options) {
    static_cast<void>(detail::native_of(pd, "ibv_create_qp", "ProtectionDomain"));
    const DeviceLimits limits = query_limits(pd.context(), options);
    const DeviceAttributes& device = limits.device;
    const Created created = create(pd, options, limits);
    handle_ = Handle(
        created.qp,
        Handle::deleter_type::holding(
            pd, options.send_cq, options.recv_cq,
            options.srq != nullptr ? options.srq->handle_ : detail::SharedReceiveQueueHandle(),
            options.xrc_domain != nullptr ? std::optional(*options.xrc_domain) : std::nullopt));
    extended_ = created.extended ? ibv_qp_to_qp_ex(created.qp) : nullptr;
    capacities_ = created.capacities;

    const std::uint8_t max_initiated =
        static_cast<std::uint8_t>(std::clamp(device.native.orig_attr.max_qp_init_rd_atom, 0, 255));
    const std::uint8_t max_served =
        static_cast<std::uint8_t>(std::clamp(device.native.orig_attr.max_qp_rd_atom, 0, 255));
    connection_ = {.path = {.port = options.port,
                            .gid_index = 0,
                            .service_level = options.service_level,
                            .traffic_class = options.traffic_class,
                            .hop_limit = options.hop_limit,
                            .flow_label = options.flow_label,
                            .static_rate = options.static_rate,
                            .src_path_bits = options.src_path_bits},
                   .timeout = options.timeout,
                   .retry_count = options.retry_count,
                   .rnr_retry = options.rnr_retry,
                   .min_rnr_timer = options.min_rnr_timer,
                   .max_rd_atomic = std::min(options.max_rd_atomic, max_initiated)};
    address_ = {.type = options.type,
                .number = created.qp->qp_num,
                .psn = random_psn(),
                .qkey = is_datagram(options.type) ? options.qkey : 0,
                .gid = {},
                .lid = 0,
                .mtu = IBV_MTU_1024,
                .max_dest_rd_atomic = std::min(options.max_dest_rd_atomic, max_served)};
    find_address(options);
    initialise(options, options.access.value_or(default_access(options.type, device.atomics())));
}

void PreparedQueuePair::find_address(const QueuePairOptions& options) {
    const Context& context = protection_domain().context();
    const ibv_port_attr port = context.port(options.port);
    // A port in the state ACTIVE_DEFER still transfers data while its link recovers.
    if (port.state != IBV_PORT_ACTIVE && port.state != IBV_PORT_ACTIVE_DEFER) {
        throw Error(EINVAL, modify_qp,
                    "port " + std::to_string(options.port) + " of " + context.device_name() +
                        " is " + ibv_port_state_str(port.state) +
                        ", not active: bring its link up, or choose another port");
    }
    address_.lid = port.lid;
    address_.mtu = options.mtu.value_or(port.active_mtu);
    std::optional<std::uint8_t> index = options.gid_index;
    if (!index && options.type == QueuePairType::scalable_reliable_datagram) {
        index = 0; // A port of an EFA device has one GID.
    }
    if (index) {
        union ibv_gid gid {};
        errno = 0;
        detail::check_zero(ibv_query_gid(context.native(), options.port, *index, &gid),
                           "ibv_query_gid", [&](int) {
                               return "GID index " + std::to_string(*index) + " of port " +
                                      std::to_string(options.port) + ", whose table has " +
                                      std::to_string(port.gid_tbl_len) + " entries";
                           });
        address_.gid = Gid::from_native(gid);
        connection_.path.gid_index = *index;
    } else if (port.link_layer != IBV_LINK_LAYER_INFINIBAND) {
        // RoCE and other link layers need a GID. Within an InfiniBand subnet, the LID is
        // sufficient.
        const GidEntry entry = context.best_gid(options.port);
        address_.gid = entry.gid;
        connection_.path.gid_index = entry.index;
    }
}

void PreparedQueuePair::initialise(const QueuePairOptions& options, Access access) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = options.pkey_index;
    attributes.port_num = options.port;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (is_datagram(options.type)) {
        attributes.qkey = options.qkey;
        mask |= IBV_QP_QKEY;
    } else {
        attributes.qp_access_flags = static_cast<unsigned>(access);
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    modify(native(), attributes, mask,
           [&](int) { return "to INIT on port " + std::to_string(options.port); });
}

QueuePair PreparedQueuePair::connect(const QueuePairAddress& peer) && {
    if (is_datagram(address_.type)) {
        throw Error(EINVAL, "ibv_modify_qp",
                    "datagram queue pairs (UD, SRD) have no peer: call activate(), and "
                    "send with post_send_to()");
    }
    if (peer.type != peer_type(address_.type)) {
        throw Error(EPROTO, "ibv_modify_qp",
                    std::string("this queue pair is ") + to_string(address_.type) +
                        " and the peer's is " + to_string(peer.type));
    }
    ready_to_receive(peer);
    ready_to_send(peer);
    return {std::move(handle_), extended_};
}

void PreparedQueuePair::ready_to_receive(const QueuePairAddress& peer) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.ah_attr = detail::make_ah_attr(peer, connection_.path);
    attributes.path_mtu = std::min(address_.mtu, peer.mtu);
    attributes.dest_qp_num = peer.number;
    attributes.rq_psn = peer.psn;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (is_reliable_target(address_.type)) {
        attributes.max_dest_rd_atomic = address_.max_dest_rd_atomic;
        attributes.min_rnr_timer = connection_.min_rnr_timer;
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    modify(native(), attributes, mask, [&](int) {
        return "to RTR: QP " + std::to_string(peer.number) + " at " +
               (peer.gid.is_zero() ? "LID " + std::to_string(peer.lid) : to_string(peer.gid)) +
               ", from GID index " + std::to_string(connection_.path.gid_index);
    });
}

void PreparedQueuePair::ready_to_send(const QueuePairAddress& peer) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = address_.psn;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (address_.type == QueuePairType::xrc_receive) {
        attributes.timeout = connection_.timeout;
        mask |= IBV_QP_TIMEOUT;
    }
    if (is_reliable_initiator(address_.type)) {
        attributes.timeout = connection_.timeout;
        attributes.retry_cnt = connection_.retry_count;
        attributes.rnr_retry = connection_.rnr_retry;
        attributes.max_rd_atomic = std::min(connection_.max_rd_atomic, peer.max_dest_rd_atomic);
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    // If IBV_QP_RNR_RETRY is not set, an SRD queue pair repeats a send without limit after RNR
    // NAKs.
    if (address_.type == QueuePairType::scalable_reliable_datagram &&
        connection_.rnr_retry != retry_without_limit) {
        attributes.rnr_retry = connection_.rnr_retry;
        mask |= IBV_QP_RNR_RETRY;
    }
    modify(native(), attributes, mask, std::string_view("to RTS"));
}

QueuePair PreparedQueuePair::activate() && {
    if (!is_datagram(address_.type)) {
        throw Error(
            EINVAL, "ibv_modify_qp",
            std::string(to_string(address_.type)) + " queue pairs need a peer: call connect()");
    }
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    modify(native(), attributes, IBV_QP_STATE, std::string_view("to RTR"));
    ready_to_send(address_);
    return {std::move(handle_), extended_};
}

QueuePair PreparedQueuePair::assume_connected() && {
    if (const ibv_qp_state state = query(native(), IBV_QP_STATE).qp_state; state != IBV_QPS_RTS) {
        throw Error(EINVAL, "ibv_query_qp",
                    "the queue pair is in state " + std::to_string(state) +
                        ", not ready to send (3): finish connecting it first");
    }
    return {std::move(handle_), extended_};
}

} // namespace rdmabuf
