// SPDX-License-Identifier: BSD-3-Clause
// Connections through librdmacm within one process.
#include <array>

#include "cm_fixture.hpp"

namespace softverbs_test {
namespace {

class ConnectionManager : public testing::Test {
  protected:
    /// A client that has sent a connection request, and the id of this request at the server.
    struct Requested {
        UniqueId listener;
        UniqueId client;
        UniqueId server;
        SeenEvent request;
    };
    [[nodiscard]] Requested request(rdma_conn_param parameters) {
        Requested made;
        made.listener = server_.listen();
        made.client = client_.route(ntohs(rdma_get_src_port(made.listener.get())));
        EXPECT_EQ(rdma_connect(made.client.get(), &parameters), 0) << std::strerror(errno);
        made.request = server_.next();
        EXPECT_EQ(made.request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
        made.server.reset(made.request.id);
        return made;
    }
    [[nodiscard]] Requested connect() {
        Requested made = request(parameters());
        rdma_conn_param reply = parameters();
        EXPECT_EQ(rdma_accept(made.server.get(), &reply), 0) << std::strerror(errno);
        EXPECT_EQ(client_.next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
        EXPECT_EQ(rdma_establish(made.client.get()), 0) << std::strerror(errno);
        EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
        return made;
    }

    Channel server_;
    Channel client_;
};

TEST_F(ConnectionManager, DeliversAConnectionsParametersAndPrivateData) {
    const std::string question(56, 'q');
    Requested made = request(parameters(question));
    EXPECT_EQ(made.request.private_data, question);
    // The initiator depth of the client is the responder resources of the server, and vice versa.
    EXPECT_EQ(made.request.conn.responder_resources, 2);
    EXPECT_EQ(made.request.conn.initiator_depth, 3);
    EXPECT_EQ(made.request.conn.retry_count, 5);
    EXPECT_EQ(made.request.conn.rnr_retry_count, 6);
    EXPECT_EQ(made.request.conn.qp_num, 0x1234U);
    EXPECT_EQ(rdma_get_dst_port(made.server.get()), rdma_get_src_port(made.client.get()));
    EXPECT_STREQ(made.server->verbs->device->name, "soft0");

    rdma_conn_param reply = parameters("answer");
    ASSERT_EQ(rdma_accept(made.server.get(), &reply), 0);
    const SeenEvent response = client_.next();
    EXPECT_EQ(response.type, RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(response.private_data, padded("answer", 196));
    ASSERT_EQ(rdma_establish(made.client.get()), 0);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(ConnectionManager, RefusesPrivateDataThatDoesNotFitItsMessage) {
    const UniqueId listener = server_.listen();
    const UniqueId client = client_.route(ntohs(rdma_get_src_port(listener.get())));
    const std::string one_byte_more(57, 'x');
    rdma_conn_param too_long = parameters(one_byte_more);
    EXPECT_EQ(rdma_connect(client.get(), &too_long), -1);
    EXPECT_EQ(errno, EINVAL);
    Requested made = request(parameters());
    const std::string data(197, 'x');
    rdma_conn_param reply = parameters(data);
    EXPECT_EQ(rdma_accept(made.server.get(), &reply), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rdma_reject(made.server.get(), data.data(), 149), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(ConnectionManager, RejectsARequestToAPortWithoutListener) {
    const UniqueId client = client_.route(4);
    rdma_conn_param asked = parameters();
    ASSERT_EQ(rdma_connect(client.get(), &asked), 0);
    const SeenEvent event = client_.next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(event.status, 8); // invalid service ID
}

TEST_F(ConnectionManager, DeliversARejectWithItsPrivateData) {
    const Requested made = request(parameters());
    ASSERT_EQ(rdma_reject(made.server.get(), "busy", 4), 0);
    const SeenEvent event = client_.next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(event.status, 28); // consumer defined
    EXPECT_EQ(event.private_data, padded("busy", 148));
    // The request was rejected, so it cannot be accepted.
    rdma_conn_param reply = parameters();
    EXPECT_EQ(rdma_accept(made.server.get(), &reply), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(ConnectionManager, RejectsWhatExceedsTheBacklog) {
    const UniqueId listener = server_.listen(RDMA_PS_TCP, 1);
    const std::uint16_t port = ntohs(rdma_get_src_port(listener.get()));
    const UniqueId first = client_.route(port);
    const UniqueId second = client_.route(port);
    rdma_conn_param asked = parameters();
    ASSERT_EQ(rdma_connect(first.get(), &asked), 0);
    ASSERT_EQ(rdma_connect(second.get(), &asked), 0);
    const SeenEvent event = client_.next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(event.id, second.get());
    EXPECT_EQ(event.status, 28);
    const UniqueId waiting(server_.next().id);
}

TEST_F(ConnectionManager, EndsAConnectionAtBothSides) {
    const Requested made = connect();
    ASSERT_EQ(rdma_disconnect(made.client.get()), 0);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    ASSERT_EQ(rdma_disconnect(made.server.get()), 0);
    EXPECT_EQ(client_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(client_.next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(ConnectionManager, EndsAConnectionWhoseIdIsDestroyed) {
    Requested made = connect();
    made.server.reset();
    const SeenEvent event = client_.next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(event.id, made.client.get());
}

TEST_F(ConnectionManager, RejectsTheRequestsOfAListenerThatIsDestroyed) {
    UniqueId listener = server_.listen();
    const UniqueId client = client_.route(ntohs(rdma_get_src_port(listener.get())));
    rdma_conn_param asked = parameters();
    ASSERT_EQ(rdma_connect(client.get(), &asked), 0);
    ASSERT_TRUE(becomes_readable(server_.fd()));
    listener.reset();
    EXPECT_EQ(client_.next().type, RDMA_CM_EVENT_REJECTED);
    EXPECT_FALSE(is_readable(server_.fd())) << "the event of the request is still there";
}

TEST_F(ConnectionManager, BindsAPortOnce) {
    const UniqueId first = server_.make_id();
    ASSERT_EQ(bind_error(first.get(), "127.0.0.1", 0), 0);
    const std::uint16_t port = ntohs(rdma_get_src_port(first.get()));
    EXPECT_GE(port, 32768);
    EXPECT_EQ(bind_error(first.get(), "127.0.0.1", 0), EINVAL);
    const UniqueId same = server_.make_id();
    EXPECT_EQ(bind_error(same.get(), "127.0.0.1", port), EADDRINUSE);
    const UniqueId any = server_.make_id();
    EXPECT_EQ(bind_error(any.get(), "0.0.0.0", port), EADDRNOTAVAIL);
    const UniqueId other_address = server_.make_id();
    EXPECT_EQ(bind_error(other_address.get(), "127.0.0.9", port), 0);
    const UniqueId other_space = server_.make_id(RDMA_PS_UDP);
    EXPECT_EQ(bind_error(other_space.get(), "127.0.0.1", port), 0);
    const UniqueId elsewhere = server_.make_id();
    EXPECT_EQ(bind_error(elsewhere.get(), "198.51.100.7", 0), EADDRNOTAVAIL);
}

TEST_F(ConnectionManager, SharesAPortOfIdsThatReuseAddresses) {
    const UniqueId first = server_.make_id();
    const UniqueId second = server_.make_id();
    int on = 1;
    for (rdma_cm_id* const id : {first.get(), second.get()}) {
        ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on), 0);
    }
    ASSERT_EQ(bind_error(first.get(), "127.0.0.1", 0), 0);
    const std::uint16_t port = ntohs(rdma_get_src_port(first.get()));
    ASSERT_EQ(bind_error(second.get(), "127.0.0.1", port), 0);
    EXPECT_EQ(rdma_listen(second.get(), 1), -1);
    EXPECT_EQ(errno, EADDRINUSE);
}

TEST_F(ConnectionManager, DoesNotShareThePortOfAListener) {
    const UniqueId listener = server_.make_id();
    const UniqueId other = server_.make_id();
    int on = 1;
    for (rdma_cm_id* const id : {listener.get(), other.get()}) {
        ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on), 0);
    }
    ASSERT_EQ(bind_error(listener.get(), "127.0.0.1", 0), 0);
    ASSERT_EQ(rdma_listen(listener.get(), 1), 0);
    const std::uint16_t port = ntohs(rdma_get_src_port(listener.get()));
    EXPECT_EQ(bind_error(other.get(), "127.0.0.1", port), EADDRINUSE);
    EXPECT_EQ(bind_error(other.get(), "0.0.0.0", port), EADDRNOTAVAIL);
}

TEST_F(ConnectionManager, SharesAPortOfAnIdThatPermitsItAfterItsBind) {
    const UniqueId first = server_.make_id();
    ASSERT_EQ(bind_error(first.get(), "127.0.0.1", 0), 0);
    const std::uint16_t port = ntohs(rdma_get_src_port(first.get()));
    const UniqueId second = server_.make_id();
    int on = 1;
    ASSERT_EQ(rdma_set_option(second.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 4), 0);
    EXPECT_EQ(bind_error(second.get(), "127.0.0.1", port), EADDRINUSE);
    ASSERT_EQ(rdma_set_option(first.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 4), 0);
    EXPECT_EQ(bind_error(second.get(), "127.0.0.1", port), 0);
}

TEST_F(ConnectionManager, GivesAListenerAtAllAddressesTheDeviceOfTheRequest) {
    const UniqueId listener = server_.listen(RDMA_PS_TCP, 8, "0.0.0.0");
    EXPECT_EQ(listener->verbs, nullptr);
    const UniqueId client = client_.route(ntohs(rdma_get_src_port(listener.get())));
    rdma_conn_param asked = parameters();
    ASSERT_EQ(rdma_connect(client.get(), &asked), 0);
    const UniqueId server(server_.next().id);
    ASSERT_NE(server->verbs, nullptr);
    EXPECT_STREQ(server->verbs->device->name, "soft0");
}

TEST_F(ConnectionManager, FailsToResolveAnAddressThatNoDeviceReaches) {
    const UniqueId id = client_.make_id();
    sockaddr_in to = ipv4("198.51.100.7", 7);
    ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, reinterpret_cast<sockaddr*>(&to), 2000), 0);
    const SeenEvent event = client_.next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_ADDR_ERROR);
    EXPECT_TRUE(event.status == -ENODEV || event.status == -ENETUNREACH) << event.status;
}

TEST_F(ConnectionManager, ConnectsDatagramIdsByServiceResolution) {
    const UniqueId listener = server_.listen(RDMA_PS_UDP);
    const UniqueId client = client_.route(ntohs(rdma_get_src_port(listener.get())), RDMA_PS_UDP);
    const std::string question(180, 'q');
    rdma_conn_param asked = parameters(question);
    ASSERT_EQ(rdma_connect(client.get(), &asked), 0);
    const SeenEvent request = server_.next();
    EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request.private_data, question);
    const UniqueId server(request.id);
    rdma_conn_param reply = parameters("yes");
    reply.qp_num = 0x77;
    ASSERT_EQ(rdma_accept(server.get(), &reply), 0);
    const SeenEvent event = client_.next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(event.private_data, padded("yes", 136));
    EXPECT_EQ(event.ud.qp_num, 0x77U);
    EXPECT_EQ(event.ud.qkey, static_cast<std::uint32_t>(RDMA_UDP_QKEY));
    EXPECT_EQ(event.ud.ah_attr.dlid, 1);
    EXPECT_EQ(event.ud.ah_attr.port_num, 1);
}

TEST_F(ConnectionManager, ReportsADatagramServiceThatIsMissingOrRefuses) {
    const UniqueId nowhere = client_.route(4, RDMA_PS_UDP);
    rdma_conn_param asked = parameters();
    ASSERT_EQ(rdma_connect(nowhere.get(), &asked), 0);
    const SeenEvent missing = client_.next();
    EXPECT_EQ(missing.type, RDMA_CM_EVENT_UNREACHABLE);
    EXPECT_EQ(missing.status, 1); // IB_SIDR_UNSUPPORTED

    const UniqueId listener = server_.listen(RDMA_PS_UDP);
    const UniqueId client = client_.route(ntohs(rdma_get_src_port(listener.get())), RDMA_PS_UDP);
    ASSERT_EQ(rdma_connect(client.get(), &asked), 0);
    const UniqueId server(server_.next().id);
    ASSERT_EQ(rdma_reject(server.get(), nullptr, 0), 0);
    const SeenEvent refused = client_.next();
    EXPECT_EQ(refused.type, RDMA_CM_EVENT_UNREACHABLE);
    EXPECT_EQ(refused.status, 2); // IB_SIDR_REJECT
}

TEST_F(ConnectionManager, MovesAnIdWithItsEventsToAnotherChannel) {
    const UniqueId id = client_.make_id();
    sockaddr_in to = ipv4("127.0.0.1", 7);
    ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, reinterpret_cast<sockaddr*>(&to), 2000), 0);
    ASSERT_EQ(rdma_migrate_id(id.get(), server_.native()), 0);
    EXPECT_FALSE(is_readable(client_.fd()));
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(ConnectionManager, GivesTheAttributesOfAQueuePairInEachState) {
    Requested made = request(parameters());
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(rdma_init_qp_attr(made.client.get(), &attributes, &mask), -1);
    EXPECT_EQ(errno, EINVAL) << "the peer's queue pair is not known yet";
    attributes.qp_state = IBV_QPS_INIT;
    ASSERT_EQ(rdma_init_qp_attr(made.server.get(), &attributes, &mask), 0);
    EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    EXPECT_EQ(attributes.qp_access_flags,
              static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                    IBV_ACCESS_REMOTE_ATOMIC));
    attributes.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(rdma_init_qp_attr(made.server.get(), &attributes, &mask), 0);
    EXPECT_EQ(attributes.dest_qp_num, 0x1234U);
    EXPECT_EQ(attributes.ah_attr.dlid, 1);
    EXPECT_EQ(attributes.max_dest_rd_atomic, 2);
    EXPECT_EQ(attributes.path_mtu, IBV_MTU_4096);
    attributes.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(rdma_init_qp_attr(made.server.get(), &attributes, &mask), 0);
    EXPECT_EQ(attributes.retry_cnt, 5);
    EXPECT_EQ(attributes.rnr_retry, 6);
    EXPECT_EQ(attributes.max_rd_atomic, 3);
}

TEST_F(ConnectionManager, JoinsAMulticastGroup) {
    const UniqueId id = client_.make_id(RDMA_PS_UDP);
    ASSERT_EQ(bind_error(id.get(), "127.0.0.1", 0), 0);
    sockaddr_in group = ipv4("239.1.2.3", 0);
    ASSERT_EQ(rdma_join_multicast(id.get(), reinterpret_cast<sockaddr*>(&group), nullptr), 0);
    const SeenEvent event = client_.next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_MULTICAST_JOIN);
    EXPECT_EQ(event.ud.qp_num, 0xffffffU);
    EXPECT_EQ(event.ud.qkey, static_cast<std::uint32_t>(RDMA_UDP_QKEY));
    EXPECT_GE(event.ud.ah_attr.dlid, 0xc000);
    const std::array<std::uint8_t, 16> mgid{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 1,
                                            0,    0,    0,    0,    0x0f, 1,    2, 3};
    EXPECT_EQ(std::memcmp(&event.ud.ah_attr.grh.dgid, mgid.data(), mgid.size()), 0);
    EXPECT_EQ(rdma_leave_multicast(id.get(), reinterpret_cast<sockaddr*>(&group)), 0);
}

TEST_F(ConnectionManager, FailsCallsAsPlanned) {
    ASSERT_EQ(softverbs_fail_call("rdma_create_id", 1, ENOSPC), 0);
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(client_.native(), &id, nullptr, RDMA_PS_TCP), -1);
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_EQ(softverbs_set_faults("rdma_listen#2=ENOMEM"), 0);
    EXPECT_EQ(softverbs_pending_faults(), 1U);
    softverbs_clear_faults();
    EXPECT_EQ(softverbs_fail_call("rdma_nothing", 1, ENOSPC), EINVAL);
}

// This must be the last test, because librdmacm keeps the device open until the process ends, and
// the test makes it fail.
TEST_F(ConnectionManager, ReportsTheRemovalOfADevice) {
    const UniqueId id = client_.route(4);
    ASSERT_EQ(softverbs_fail_device(id->verbs), 0);
    EXPECT_EQ(client_.next().type, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

} // namespace
} // namespace softverbs_test
