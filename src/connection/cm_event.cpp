// SPDX-License-Identifier: BSD-3-Clause
#include "connection/cm_event.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"
#include "base/text.hpp"

namespace rdmabuf::cm::detail {
namespace {

/// Returns the meaning of a reject reason. The numbers of the reasons are in "REJ - Reject" in
/// volume 1 of the InfiniBand specification, and in the kernel's include/rdma/ib_cm.h.
std::string describe_reject(int reason) {
    switch (reason) {
        case 1:
            return "the peer has no free queue pair";
        case 3:
            return "the peer has no free resources";
        case 4:
            return "the peer timed out while connecting";
        case 8:
            return "no program listens at this address";
        case 10:
            return "the peer still has an earlier connection of this queue pair number";
        case 28:
            return "the program at the peer did not accept the connection";
        default:
            return "reject reason " + std::to_string(reason);
    }
}

/// Returns the text that the peer's program sent with its rejection, without the padding zeros.
std::string words_of(const rdma_conn_param& param) {
    std::string_view text;
    if (param.private_data != nullptr) {
        text = {static_cast<const char*>(param.private_data), param.private_data_len};
    }
    text = text.substr(0, text.find('\0'));
    return text.empty() ? "" : ": message " + rdmabuf::detail::quote(text);
}

/// Returns the errno value of a failed event. A negative status is a negative errno value. For any
/// other status, the result is @p otherwise: a positive status is a reason code of the transport.
int errno_of(const rdma_cm_event& event, int otherwise) {
    return event.status < 0 ? -event.status : otherwise;
}

/// Returns true for events that await_event() ignores: they do not concern the current step.
bool is_aside(rdma_cm_event_type type) {
    return type == RDMA_CM_EVENT_ADDR_CHANGE || type == RDMA_CM_EVENT_TIMEWAIT_EXIT;
}

} // namespace

Event next_event(rdma_event_channel* channel, std::chrono::milliseconds timeout) {
    const rdmabuf::detail::Deadline deadline(timeout);
    while (true) {
        rdma_cm_event* raw = nullptr;
        errno = 0;
        const int result = rdma_get_cm_event(channel, &raw);
        Event event(result == 0 ? raw : nullptr);
        if (event != nullptr) {
            // If librdmacm itself fails to process an event, the status is -1 and errno has the
            // cause.
            if (event->status == -1 && errno != 0) {
                event->status = -errno;
            }
            return event;
        }
        rdmabuf::detail::check_zero(errno == EAGAIN || errno == EINTR ? 0 : -1,
                                    "rdma_get_cm_event");
        if (!rdmabuf::detail::wait_readable(channel->fd, deadline.left())) {
            return nullptr;
        }
    }
}

Error failure(const Step& step, int error) {
    const auto with = [&](const std::string& hint) { return Error(error, step.function, hint); };
    switch (error) {
        case ENODEV:
            return with("no RDMA device can use the address " + step.peer +
                        ": `rdma link` lists the devices and their interfaces");
        case ETIMEDOUT:
            return with(step.peer + " did not answer");
        case ENETUNREACH:
        case EHOSTUNREACH:
            return with("there is no route to " + step.peer);
        case EADDRINUSE:
            return with("a listener at " + step.peer + " already exists");
        case EADDRNOTAVAIL:
            return with(step.peer + " is not an address of this machine");
        case EACCES:
            return with("listening at " + step.peer + " needs CAP_NET_BIND_SERVICE");
        default:
            return with(step.peer);
    }
}

Error failure(const Step& step, const rdma_cm_event& event) {
    switch (event.event) {
        case RDMA_CM_EVENT_REJECTED:
            return {ECONNREFUSED, step.function,
                    step.peer + " refused: " +
                        (event.status < 0 ? describe_errno(-event.status)
                                          : describe_reject(event.status)) +
                        words_of(event.param.conn)};
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            return {ENODEV, step.function, "the RDMA device was removed"};
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
            return failure(step, errno_of(event, EHOSTUNREACH));
        case RDMA_CM_EVENT_CONNECT_ERROR:
            return failure(step, errno_of(event, ECONNABORTED));
        case RDMA_CM_EVENT_DISCONNECTED:
            return {ECONNRESET, step.function,
                    step.peer + " disconnected before the connection was established"};
        default:
            return {
                EPROTO, step.function,
                std::string("unexpected ") + rdma_event_str(event.event) + " from " + step.peer};
    }
}

Event await_event(rdma_event_channel* channel, const Step& step,
                  std::initializer_list<rdma_cm_event_type> wanted,
                  const rdmabuf::detail::Deadline& deadline) {
    while (Event event = next_event(channel, deadline.left())) {
        // An event of a type in `wanted` can also report a failure: its status is then not 0. See
        // rdma_get_cm_event(3).
        if (std::find(wanted.begin(), wanted.end(), event->event) != wanted.end()) {
            if (event->status != 0) {
                throw failure(step, errno_of(*event, EIO));
            }
            return event;
        }
        if (!is_aside(event->event)) {
            throw failure(step, *event);
        }
    }
    throw Error(ETIMEDOUT, step.function,
                step.peer + " did not answer; the time limit was " + deadline.describe());
}

} // namespace rdmabuf::cm::detail
