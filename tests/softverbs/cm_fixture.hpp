// SPDX-License-Identifier: BSD-3-Clause
// Support for tests of the emulated rdma_cm device with the unmodified librdmacm of Debian.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <softverbs/softverbs.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "manual_clock.hpp"

namespace softverbs_test {

struct ChannelDestroyer {
    void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
};
using UniqueEventChannel = std::unique_ptr<rdma_event_channel, ChannelDestroyer>;
struct IdDestroyer {
    void operator()(rdma_cm_id* id) const { EXPECT_EQ(rdma_destroy_id(id), 0); }
};
using UniqueId = std::unique_ptr<rdma_cm_id, IdDestroyer>;

inline constexpr int time_limit_ms = std::chrono::milliseconds(time_limit).count();

/// The members of an event that tests compare. They are copied before the event is acknowledged.
struct SeenEvent {
    rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_CHANGE;
    int status = 0;
    rdma_cm_id* id = nullptr;
    rdma_conn_param conn{};
    rdma_ud_param ud{};
    std::string private_data;
};

inline sockaddr_in ipv4(const char* address, std::uint16_t port) {
    sockaddr_in made{};
    made.sin_family = AF_INET;
    made.sin_port = htons(port);
    ::inet_pton(AF_INET, address, &made.sin_addr);
    return made;
}

/// Binds an id to an address. Returns 0 or an errno.
inline int bind_error(rdma_cm_id* id, const char* address, std::uint16_t port) {
    sockaddr_in native = ipv4(address, port);
    return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&native)) == 0 ? 0 : errno;
}

/// An event channel. Its functions create ids on this channel.
class Channel {
  public:
    Channel() : native_(rdma_create_event_channel()) {
        EXPECT_NE(native_, nullptr) << std::strerror(errno);
    }

    [[nodiscard]] rdma_event_channel* native() const { return native_.get(); }
    [[nodiscard]] int fd() const { return native_->fd; }

    [[nodiscard]] UniqueId make_id(rdma_port_space space = RDMA_PS_TCP) const {
        rdma_cm_id* id = nullptr;
        EXPECT_EQ(rdma_create_id(native_.get(), &id, nullptr, space), 0) << std::strerror(errno);
        return UniqueId(id);
    }

    /// Returns an id that listens on a free port.
    [[nodiscard]] UniqueId listen(rdma_port_space space = RDMA_PS_TCP, int backlog = 8,
                                  const char* address = "127.0.0.1") const {
        UniqueId id = make_id(space);
        EXPECT_EQ(bind_error(id.get(), address, 0), 0) << std::strerror(errno);
        EXPECT_EQ(rdma_listen(id.get(), backlog), 0) << std::strerror(errno);
        return id;
    }

    /// Returns an id whose route to the port is resolved.
    [[nodiscard]] UniqueId route(std::uint16_t port, rdma_port_space space = RDMA_PS_TCP,
                                 const char* address = "127.0.0.1") const {
        UniqueId id = make_id(space);
        sockaddr_in to = ipv4(address, port);
        EXPECT_EQ(
            rdma_resolve_addr(id.get(), nullptr, reinterpret_cast<sockaddr*>(&to), time_limit_ms),
            0);
        EXPECT_EQ(next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
        EXPECT_EQ(rdma_resolve_route(id.get(), time_limit_ms), 0) << std::strerror(errno);
        EXPECT_EQ(next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
        return id;
    }

    /// Returns the next event. Fails the test if no event arrives.
    [[nodiscard]] SeenEvent next() const {
        if (!becomes_readable(fd())) {
            ADD_FAILURE() << "no event arrived";
            return {};
        }
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(native_.get(), &event) != 0) {
            ADD_FAILURE() << std::strerror(errno);
            return {};
        }
        SeenEvent seen{event->event, event->status, event->id, {}, {}, {}};
        const bool datagram = event->id->qp_type == IBV_QPT_UD;
        seen.conn = event->param.conn;
        seen.ud = event->param.ud;
        const void* const data =
            datagram ? event->param.ud.private_data : event->param.conn.private_data;
        const std::size_t size =
            datagram ? event->param.ud.private_data_len : event->param.conn.private_data_len;
        if (data != nullptr && event->event != RDMA_CM_EVENT_MULTICAST_JOIN) {
            seen.private_data.assign(static_cast<const char*>(data), size);
        }
        EXPECT_EQ(rdma_ack_cm_event(event), 0);
        return seen;
    }

  private:
    UniqueEventChannel native_;
};

/// Returns parameters for a connection whose queue pair does not belong to librdmacm. They refer to
/// @p private_data.
inline rdma_conn_param parameters(std::string_view private_data = {}) {
    rdma_conn_param made{};
    made.private_data = private_data.data();
    made.private_data_len = static_cast<std::uint8_t>(private_data.size());
    made.responder_resources = 3;
    made.initiator_depth = 2;
    made.retry_count = 5;
    made.rnr_retry_count = 6;
    made.qp_num = 0x1234;
    return made;
}

/// Returns private data in the form in which the receiver gets it: padded with zeros.
inline std::string padded(std::string data, std::size_t size) {
    data.resize(size);
    return data;
}

} // namespace softverbs_test
