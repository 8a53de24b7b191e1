// SPDX-License-Identifier: BSD-3-Clause
#include "connection/cm_steps.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"
#include "connection/cm_event.hpp"

namespace rdmabuf::cm::detail {

using rdmabuf::detail::check_pointer;
using rdmabuf::detail::check_zero;
using rdmabuf::detail::Deadline;
using rdmabuf::detail::HostAddresses;
using rdmabuf::detail::resolve_host;
using rdmabuf::detail::to_string;
using rdmabuf::detail::try_each;

namespace {

struct QpChange {
    ibv_qp_attr attributes{};
    int mask = 0;
};

/// Returns the attributes for the transition of the connection's queue pair to @p state; see
/// rdma_init_qp_attr(3).
QpChange change_to(const Id& id, ibv_qp_state state) {
    QpChange change;
    change.attributes.qp_state = state;
    check_zero(rdma_init_qp_attr(id.get(), &change.attributes, &change.mask), "rdma_init_qp_attr");
    return change;
}

void apply(const PreparedQueuePair& prepared, QpChange change, const char* hint) {
    check_zero(ibv_modify_qp(prepared.native(), &change.attributes, change.mask), "ibv_modify_qp",
               std::string_view(hint));
}

/// Replaces the values of @p path for which @p options has a value other than the default.
void set_path_options(ibv_ah_attr& path, const AddressHandleOptions& options) noexcept {
    if (options.traffic_class != 0) {
        path.grh.traffic_class = options.traffic_class;
    }
    if (options.flow_label != 0) {
        path.grh.flow_label = options.flow_label;
    }
    if (options.static_rate != IBV_RATE_MAX) {
        path.static_rate = static_cast<std::uint8_t>(options.static_rate);
    }
}

/// If the devices of both ends have the same vendor, calls ibv_set_ece(3) for the queue pair @p
/// prepared with the ECE options that the peer has offered.
void apply_ece(const Id& id, const PreparedQueuePair& prepared) {
    ibv_ece own{};
    ibv_ece offered{};
    if (ibv_query_ece(prepared.native(), &own) == 0 && own.vendor_id != 0 &&
        rdma_get_remote_ece(id.get(), &offered) == 0 && offered.vendor_id == own.vendor_id) {
        check_zero(ibv_set_ece(prepared.native(), &offered), "ibv_set_ece");
    }
}

Id listen_at(sockaddr& address, int backlog, const std::function<Id()>& make) {
    Id id = make();
    const auto check = [&](int result, const char* function) {
        if (result != 0) {
            throw failure(Step{function, to_string(address)}, errno);
        }
    };
    int this_family_only = 0;
    check(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &this_family_only,
                          sizeof this_family_only),
          "rdma_set_option");
    check(rdma_bind_addr(id.get(), &address), "rdma_bind_addr");
    check(rdma_listen(id.get(), backlog), "rdma_listen");
    return id;
}

Id listen_at_all(std::uint16_t port, int backlog, const std::function<Id()>& make) {
    try {
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        address.sin6_port = htons(port);
        return listen_at(reinterpret_cast<sockaddr&>(address), backlog, make);
    } catch (const Error& error) {
        // These two errors mean that the kernel does not support IPv6. In this case, the code below
        // listens with IPv4. All other errors are thrown.
        if (error.error() != EAFNOSUPPORT && error.error() != EADDRNOTAVAIL) {
            throw;
        }
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    return listen_at(reinterpret_cast<sockaddr&>(address), backlog, make);
}

} // namespace

EventChannelHandle make_channel() {
    errno = 0;
    rdma_event_channel* const raw = rdma_create_event_channel();
    if (raw == nullptr && (errno == ENOENT || errno == EPERM)) {
        throw Error(ENODEV, "rdma_create_event_channel",
                    "there is no usable /dev/infiniband/rdma_cm: load the kernel module rdma_ucm "
                    "(and give a container the device)");
    }
    check_pointer(raw, "rdma_create_event_channel", [](int error) {
        return error == ENODEV
                   ? "this machine has no RDMA device: check that the driver of the NIC is loaded "
                     "(ls /sys/class/infiniband)"
                   : "/dev/infiniband/rdma_cm cannot be opened";
    });
    EventChannelHandle channel(EventChannelHandle::unique(raw, {}));
    rdmabuf::detail::make_nonblocking(raw->fd);
    return channel;
}

Id make_id(EventChannelHandle channel, rdma_port_space space, void* context) {
    rdma_cm_id* raw = nullptr;
    check_zero(rdma_create_id(channel.get(), &raw, context, space), "rdma_create_id");
    return Id(raw, Id::deleter_type::holding(std::move(channel)));
}

void begin_to_resolve(const Id& id, const addrinfo* source, sockaddr& destination,
                      const RouteOptions& options, std::chrono::milliseconds timeout) {
    if (options.type_of_service) {
        std::uint8_t value = *options.type_of_service;
        check_zero(
            rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, sizeof value),
            "rdma_set_option", std::string_view("type of service"));
    }
    sockaddr* const local = source != nullptr ? source->ai_addr : nullptr;
    if (rdma_resolve_addr(id.get(), local, &destination, as_int(timeout)) != 0) {
        const int error = errno;
        // With these two errors, the kernel has refused the local address, before it looked for the
        // destination: see cma_bind_addr() in drivers/infiniband/core/cma.c.
        const bool is_local = local != nullptr && (error == EADDRNOTAVAIL || error == ENODEV);
        throw failure(Step{"rdma_resolve_addr", to_string(is_local ? *local : destination)}, error);
    }
}

HostAddresses local_addresses(const RouteOptions& options) {
    return options.local_host.empty() ? HostAddresses() : resolve_host(options.local_host, 0);
}

Id listen(const std::string& host, std::uint16_t port, int backlog,
          const std::function<Id()>& make) {
    if (host.empty()) {
        return listen_at_all(port, backlog, make);
    }
    return try_each(resolve_host(host, port), Deadline(std::chrono::milliseconds(0)),
                    [&](const addrinfo& each, const Deadline&) {
                        return listen_at(*each.ai_addr, backlog, make);
                    });
}

int as_int(std::chrono::milliseconds time) noexcept {
    constexpr int longest = std::numeric_limits<int>::max();
    return time.count() < 0 || time.count() > longest ? longest : static_cast<int>(time.count());
}

std::vector<std::byte> copy_private_data(const rdma_conn_param& param) {
    const auto* const begin = static_cast<const std::byte*>(param.private_data);
    return begin == nullptr ? std::vector<std::byte>()
                            : std::vector<std::byte>(begin, begin + param.private_data_len);
}

void check_private_data(std::size_t size, std::size_t limit, const char* function) {
    if (size > limit) {
        throw Error(EMSGSIZE, function,
                    "private data can have at most " + std::to_string(limit) + " bytes, not " +
                        std::to_string(size));
    }
}

void check_prepared(const PreparedQueuePair& prepared, const Id& id, const char* function) {
    const ibv_qp* const qp = rdmabuf::detail::native_of(prepared, function, "PreparedQueuePair");
    if (qp->context != id->verbs) {
        throw Error(
            EINVAL, function,
            "the queue pair was prepared on another context: create its protection domain on "
            "the context() of this object, even if both contexts have the same device");
    }
    if (prepared.address().type != QueuePairType::reliable_connected) {
        throw Error(EINVAL, function,
                    std::string("the queue pair is ") +
                        rdmabuf::to_string(prepared.address().type) +
                        "; the TCP port space of librdmacm connects only RC queue pairs");
    }
}

void offer_ece(const Id& id, const PreparedQueuePair& prepared) noexcept {
    ibv_ece own{};
    if (ibv_query_ece(prepared.native(), &own) == 0 && own.vendor_id != 0) {
        // An error means that the kernel or librdmacm has no ECE: the connection is then made
        // without ECE.
        static_cast<void>(rdma_set_local_ece(id.get(), &own));
    }
}

void make_ready(const Id& id, const PreparedQueuePair& prepared) {
    const PreparedQueuePair::Connection& own = prepared.connection();

    QpChange init = change_to(id, IBV_QPS_INIT);
    init.mask &= IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    apply(prepared, init, "to INIT, on the connection's port");
    apply_ece(id, prepared);

    QpChange receive = change_to(id, IBV_QPS_RTR);
    receive.attributes.min_rnr_timer = own.min_rnr_timer;
    receive.attributes.max_dest_rd_atomic =
        std::min(receive.attributes.max_dest_rd_atomic, prepared.address().max_dest_rd_atomic);
    set_path_options(receive.attributes.ah_attr, own.path);
    apply(prepared, receive, "to RTR, on the connection's path");

    QpChange send = change_to(id, IBV_QPS_RTS);
    send.attributes.timeout = own.timeout;
    send.attributes.retry_cnt = own.retry_count;
    send.attributes.rnr_retry = own.rnr_retry;
    send.attributes.max_rd_atomic = std::min(send.attributes.max_rd_atomic, own.max_rd_atomic);
    apply(prepared, send, "to RTS");
}

rdma_conn_param conn_param(const PreparedQueuePair& prepared,
                           std::span<const std::byte> private_data) {
    rdma_conn_param param{};
    param.private_data = private_data.data();
    param.private_data_len = static_cast<std::uint8_t>(private_data.size());
    param.responder_resources = prepared.address().max_dest_rd_atomic;
    param.initiator_depth = prepared.connection().max_rd_atomic;
    param.retry_count = prepared.connection().retry_count;
    param.rnr_retry_count = prepared.connection().rnr_retry;
    param.srq = prepared.native()->srq != nullptr ? 1 : 0;
    param.qp_num = prepared.native()->qp_num;
    return param;
}

std::string peer_of(const Id& id) {
    return to_string(*rdma_get_peer_addr(id.get()));
}

bool has_given_up(const Id& id) noexcept {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    int mask = 0;
    return rdma_init_qp_attr(id.get(), &attributes, &mask) != 0 && errno == EINVAL;
}

} // namespace rdmabuf::cm::detail
