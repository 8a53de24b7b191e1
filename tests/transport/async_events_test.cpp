// SPDX-License-Identifier: BSD-3-Clause
// The asynchronous events of a device end the channels that cannot work any more, and no others.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "../softverbs/sanitizers.hpp"
#include "features_fixture.hpp"
#include "poll_counter.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::HasSubstr;

class AsyncEvents : public FeaturesTest {
  protected:
    AsyncEvents() {
        // Periodic checks are made every 6 seconds, and no keepalive write is sent in a test.
        options_.heartbeat = 60s;
    }

    [[nodiscard]] static ibv_context* device_of(const Endpoint& endpoint, std::size_t rail = 0) {
        return endpoint.protection_domain(rail).context().native();
    }
    static void raise(ibv_context* device, ibv_async_event event) {
        ASSERT_EQ(softverbs_raise_event(device, &event), 0);
    }
    static void raise(ibv_context* device, ibv_event_type type) {
        raise(device, ibv_async_event{.element = {}, .event_type = type});
    }
    static void raise_port(ibv_context* device, ibv_event_type type, int port = 1) {
        ibv_async_event event{.element = {}, .event_type = type};
        event.element.port_num = port;
        raise(device, event);
    }
    static void raise(ibv_qp* pair, ibv_event_type type) {
        ibv_async_event event{.element = {}, .event_type = type};
        event.element.qp = pair;
        raise(pair->context, event);
    }
    /// Returns the queue pairs of the right endpoint of channels that were connected when @p before
    /// queue pairs existed.
    [[nodiscard]] std::vector<ibv_qp*> queue_pairs(std::size_t before) {
        const ibv_cq* const cq = right().endpoint()->shared.rails[0]->cq.native();
        std::vector<ibv_qp*> found;
        for (std::size_t i = before; i < record().queue_pairs.size(); ++i) {
            if (record().qps[i].send_cq == cq) {
                found.push_back(record().queue_pairs[i]);
            }
        }
        EXPECT_FALSE(found.empty()) << "the endpoint has no queue pair";
        return found;
    }
    [[nodiscard]] ibv_qp* queue_pair(std::size_t before = 0) { return queue_pairs(before).at(0); }
    void expect_usable() {
        pass(*from_, *to_, 100);
        pass(*from_, *to_, 100000);
    }
};

TEST_F(AsyncEvents, of_a_failed_device_end_the_channels_of_all_endpoints_that_use_it) {
    connect_with_memory();
    Request received = receive(100, 1);
    const auto receive_any = [&](Request& request) {
        return right_end().irecv(to_->memory(), to_->data(), 100, 9, full_mask, request);
    };
    Request any;
    EXPECT_EQ(receive_any(any), code(0));
    Request stored = send(10, 4);
    ASSERT_TRUE(progress_until([&] { return right().probe(4) && left().test(stored).done; }));
    raise(device_of(right_end()), IBV_EVENT_DEVICE_FATAL);
    EXPECT_EQ(complete(right(), received).error, code(EIO));
    EXPECT_EQ(right().state(), code(EIO));
    EXPECT_THAT(right().reason(), HasSubstr("IBV_EVENT_DEVICE_FATAL"));
    // No channel of this endpoint can receive a message any more.
    EXPECT_EQ(complete(right_end(), any).error, code(EIO));
    EXPECT_EQ(receive_any(any), code(EIO));
    ASSERT_EQ(right_end().irecv(to_->memory(), to_->data(), 10, 4, full_mask, any), code(0));
    EXPECT_EQ(complete(right_end(), any).bytes, 10) << "it has arrived before the failure";
    // Both endpoints of the fixture use the same ibv_context, which returns each event once. The
    // other channel has no requests.
    EXPECT_TRUE(progress_until([&] { return left().state() == code(EIO); }));
    EXPECT_THAT(left().reason(), HasSubstr("IBV_EVENT_DEVICE_FATAL"));
}

TEST_F(AsyncEvents, of_a_failed_device_refuse_further_channels) {
    connect_with_memory();
    transport::Listener listener = listen();
    raise(device_of(right_end()), IBV_EVENT_DEVICE_FATAL);
    EXPECT_TRUE(progress_until([&] { return left().state() && right().state(); }));
    auto connector = left_end().start_connect(listener.handle());
    ASSERT_TRUE(connector.ok());
    left_.reset();
    right_.reset();
    EXPECT_EQ(meet(*connector, listener), code(EIO));
    EXPECT_THAT(connector->error_info().message() + listener.error_info().message(),
                HasSubstr("IBV_EVENT_DEVICE_FATAL"));
}

TEST_F(AsyncEvents, of_the_second_device_leave_out_its_queue_pairs_only) {
    use_devices(2);
    open();
    // The third endpoint has only the first device.
    auto opened = Endpoint::open(Context::open_first(), resolver_, options_);
    ASSERT_TRUE(opened.ok());
    third_end_.emplace(*std::move(opened));
    transport::Listener listener = listen();
    auto narrow = connect_another(*third_end_, listener);
    auto wide = connect_another(left_end(), listener);
    raise(device_of(right_end(), 1), IBV_EVENT_DEVICE_FATAL);
    EXPECT_TRUE(progress_until([&] { return wide.second.working_rails() == 1; }));
    EXPECT_THAT(wide.second.rail_reason(1), HasSubstr("IBV_EVENT_DEVICE_FATAL"));
    EXPECT_EQ(wide.second.state(), code(0));
    EXPECT_EQ(narrow.second.state(), code(0));
    EXPECT_EQ(narrow.second.working_rails(), narrow.second.rails());
}

TEST_F(AsyncEvents, of_the_second_device_do_not_destroy_the_cache_that_another_thread_may_use) {
    use_devices(2);
    connect_with_memory();
    const auto address = reinterpret_cast<std::uintptr_t>(to_->data());
    RegistrationCache& before = right_end().cache();
    raise(device_of(right_end(), 1), IBV_EVENT_DEVICE_FATAL);
    EXPECT_TRUE(progress_until([&] { return &right_end().cache() != &before; }));
    before.invalidate(address, memory_size);
    EXPECT_EQ(before.statistics().entries, 1U) << "the lease of the memory";
    to_.reset();
    EXPECT_EQ(before.statistics().entries, 0U);
}

TEST_F(AsyncEvents, of_shared_queues_end_the_channels_of_their_endpoint_only) {
    for (const auto& [type, name] : {std::pair(IBV_EVENT_CQ_ERR, "IBV_EVENT_CQ_ERR"),
                                     std::pair(IBV_EVENT_SRQ_ERR, "IBV_EVENT_SRQ_ERR")}) {
        disconnect_all();
        connect_with_memory();
        Request received = receive(100, 1);
        const auto& rail = *right().endpoint()->shared.rails[0];
        ibv_async_event event{.element = {}, .event_type = type};
        if (type == IBV_EVENT_CQ_ERR) {
            event.element.cq = rail.cq.native();
        } else {
            event.element.srq = rail.srq.native();
        }
        raise(device_of(right_end()), event);
        EXPECT_TRUE(progress_until([&] {
            right_end().progress();
            return right().state() == code(EIO);
        }));
        EXPECT_THAT(right().reason(), HasSubstr(name));
        EXPECT_EQ(complete(right(), received).error, code(EIO));
        EXPECT_TRUE(progress_until([&] { return left_end().arm(); }));
        EXPECT_STREQ(left().endpoint()->shared.rails[0]->failure, nullptr);
    }
}

TEST_F(AsyncEvents, of_a_queue_pair_end_its_channel_only) {
    const std::vector<std::tuple<ibv_event_type, int, const char*>> events = {
        {IBV_EVENT_QP_FATAL, EIO, "IBV_EVENT_QP_FATAL"},
        {IBV_EVENT_QP_REQ_ERR, ECONNRESET, "IBV_EVENT_QP_REQ_ERR"},
        {IBV_EVENT_QP_ACCESS_ERR, ECONNRESET, "IBV_EVENT_QP_ACCESS_ERR"},
    };
    for (const auto& [type, error, name] : events) {
        const std::error_code expected = code(error);
        disconnect_all();
        connect_with_memory();
        const std::size_t before = record().queue_pairs.size();
        transport::Listener listener = listen();
        auto another = connect_another(left_end(), listener);
        raise(queue_pair(before), type);
        EXPECT_TRUE(progress_until([&] { return another.second.state() == expected; }));
        EXPECT_THAT(another.second.reason(), HasSubstr(name));
        expect_usable();
    }
}

// softverbs raises IBV_EVENT_QP_ACCESS_ERR. The channel has no requests and sends no keepalive
// writes, so no completion reports the failure.
TEST_F(AsyncEvents, of_rejected_accesses_of_the_peer_end_a_channel_without_requests) {
    options_.keep_sockets = false;
    connect_with_memory();
    const RemoteMemory target = remote();
    const std::uintptr_t address = to_->memory().address();
    to_->deregister();
    right_end().cache().invalidate(address, memory_size);
    Request put;
    ASSERT_EQ(left().iput(from_->memory(), from_->data(), 100, target, 0, put), code(0));
    EXPECT_EQ(complete(left(), put).error, code(EACCES));
    EXPECT_TRUE(progress_until([&] { return right().state() == code(ECONNRESET); }));
    EXPECT_THAT(right().reason(), HasSubstr("IBV_EVENT_QP_ACCESS_ERR"));
}

TEST_F(AsyncEvents, wake_a_sleeping_endpoint) {
    // The next periodic check would be after 2.4 hours.
    options_.heartbeat = 24h;
    connect_with_memory();
    Request received = receive(100, 1);
    std::thread device([&, waiting = ::gettid()] {
        EXPECT_TRUE(eventually([&] { return is_asleep(waiting); }));
        raise(device_of(right_end()), IBV_EVENT_DEVICE_FATAL);
    });
    EXPECT_EQ(right().wait(received, wait_forever).error, code(EIO));
    device.join();
}

TEST_F(AsyncEvents, that_another_endpoint_has_read_make_the_descriptor_readable) {
    connect_with_memory();
    ASSERT_TRUE(progress_until([&] { return right_end().arm(); }));
    ASSERT_TRUE(progress_until([&] { return left_end().arm(); }));
    raise_port(device_of(right_end()), IBV_EVENT_PORT_ACTIVE);
    EXPECT_FALSE(left_end().arm()); // reads the event
    EXPECT_FALSE(is_readable(device_of(right_end())->async_fd));
    EXPECT_TRUE(becomes_readable(right_end().descriptor()));
    EXPECT_FALSE(right_end().arm());
    EXPECT_FALSE(is_readable(right_end().descriptor()));
}

TEST_F(AsyncEvents, are_read_although_completions_arrive_without_end) {
    connect_with_memory();
    ASSERT_TRUE(progress_until([&] { return right_end().arm(); }));
    left_.reset(); // The end of the socket is an event, too.
    raise_port(device_of(right_end()), IBV_EVENT_PORT_ACTIVE);
    PollCounter endless(right_end().protection_domain().context(),
                        [left = 100000](ibv_cq*, int, ibv_wc* completions) mutable {
                            using transport::detail::Work;
                            *completions = {};
                            completions->wr_id =
                                transport::detail::WorkId{.work = Work::remote}.encode();
                            completions->qp_num = 0x123456; // No queue pair has this number.
                            return --left > 0 ? 1 : 0;
                        });
    EXPECT_FALSE(right_end().arm());
    EXPECT_GT(endless.polls, 1U);
    EXPECT_LT(endless.polls, 20000U);
}

// The channel has no work requests in flight, so its requests end inside arm().
TEST_F(AsyncEvents, that_arm_reads_are_not_followed_by_a_sleep) {
    connect_with_memory();
    ASSERT_TRUE(progress_until([&] { return right_end().arm(); }));
    raise(device_of(right_end()), IBV_EVENT_DEVICE_FATAL);
    EXPECT_FALSE(right_end().arm());
    right_end().progress();
    EXPECT_EQ(right().state(), code(EIO));
}

TEST_F(AsyncEvents, that_cannot_be_read_end_the_channels_and_do_not_wake_two_endpoints_for_ever) {
    connect_with_memory();
    ibv_context* const device = device_of(right_end());
    ASSERT_EQ(device, device_of(left_end()));
    for (unsigned call = 1; call <= 200; ++call) {
        ASSERT_EQ(softverbs_fail_call("ibv_get_async_event", call, EIO), 0);
    }
    raise(device, IBV_EVENT_SM_CHANGE);
    for (int i = 0; i < 20; ++i) {
        static_cast<void>(right_end().arm());
        static_cast<void>(left_end().arm());
    }
    EXPECT_EQ(right().state(), code(EIO));
    EXPECT_TRUE(progress_until([&] { return right_end().arm(); }));
    // The descriptor of a device that was removed reports an error for ever.
    raise(device, IBV_EVENT_SM_CHANGE);
    EXPECT_FALSE(is_readable(right_end().descriptor()));
    EXPECT_FALSE(is_readable(left_end().descriptor()));
    ibv_async_event event{};
    while (ibv_get_async_event(device, &event) != 0) {
        ASSERT_EQ(errno, EIO); // The endpoints have not made all calls that fail.
    }
    ibv_ack_async_event(&event);
}

TEST_F(AsyncEvents, of_a_port_explain_why_the_peer_does_not_respond) {
    options_.ack_timeout = 12;
    options_.retry_count = 2;
    for (const int port : {1, 2}) {
        disconnect_all();
        connect_with_memory();
        raise_port(device_of(left_end()), IBV_EVENT_PORT_ERR, port);
        ASSERT_TRUE(progress_until([&] { return left_end().arm(); }));
        ibv_port_attr attributes{};
        ASSERT_EQ(ibv_query_port(device_of(left_end()), 1, &attributes), 0);
        // softverbs_set_port_attr() raises no event.
        attributes.state = IBV_PORT_DOWN;
        ASSERT_EQ(softverbs_set_port_attr(0, 1, &attributes), 0);
        Request put;
        ASSERT_EQ(left().iput(from_->memory(), from_->data(), 100, remote(), 0, put), code(0));
        EXPECT_EQ(complete(left(), put).error, code(EHOSTUNREACH));
        // The endpoint uses port 1.
        EXPECT_STREQ(left().reason(), port == 1 ? "the port of this side's device is not active"
                                                : "the peer's device does not respond");
        attributes.state = IBV_PORT_ACTIVE;
        ASSERT_EQ(softverbs_set_port_attr(0, 1, &attributes), 0);
    }
}

TEST_F(AsyncEvents, that_need_no_action_are_ignored_and_do_not_keep_the_descriptor_readable) {
    connect_with_memory();
    ibv_context* const device = device_of(right_end());
    for (const ibv_event_type type :
         {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_QP_LAST_WQE_REACHED}) {
        raise(queue_pair(), type);
    }
    for (const ibv_event_type type :
         {IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
          IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE}) {
        raise_port(device, type);
    }
    ibv_async_event limit{.element = {}, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED};
    limit.element.srq = right().endpoint()->shared.rails[0]->srq.native();
    raise(device, limit);
    EXPECT_TRUE(becomes_readable(right_end().descriptor()));
    ASSERT_TRUE(progress_until([&] { return right_end().arm(); }));
    EXPECT_FALSE(is_readable(device->async_fd));
    EXPECT_FALSE(is_readable(right_end().descriptor()));
    ASSERT_TRUE(progress_until([&] { return left_end().arm(); }));
    EXPECT_FALSE(is_readable(left_end().descriptor()));
    EXPECT_EQ(softverbs_unacknowledged_events(), 0);
    expect_usable();
}

TEST_F(AsyncEvents, of_a_loopback_queue_pair_end_no_request) {
    connect_with_memory();
    const TestMemory memory = right_memory(memory_size, Kind::dmabuf);
    // A flush is repeated also when the channel has ended meanwhile.
    for (const bool closed : {false, true}) {
        SCOPED_TRACE(closed);
        if (closed) {
            EXPECT_EQ(left().close(), code(0));
            ASSERT_TRUE(progress_until([&] { return right().state() == code(ECONNRESET); }));
        }
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
        std::array<Request, 2> flushes;
        for (Request& flush : flushes) {
            ASSERT_EQ(right().iflush(memory.memory(), memory.data(), 1, flush), code(0));
        }
        right().progress();
        const auto& loopback = right().endpoint()->shared.rails[0]->loopback;
        raise(loopback->queue_pair.native(), IBV_EVENT_QP_FATAL);
        ASSERT_TRUE(progress_until([&] { return loopback->failed || loopback->queue.idle(); }));
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
        for (Request& flush : flushes) {
            EXPECT_EQ(complete(right(), flush).error, code(0)) << right().reason();
        }
        if (!closed) {
            expect_usable();
        }
    }
}

// Copies of unexpected messages share 16 copy buffers. The first ones keep theirs when they are
// repeated, and the others wait.
TEST_F(AsyncEvents, of_a_loopback_queue_pair_do_not_stop_the_copies_of_40_messages) {
    connect_with_memory();
    const TestMemory memory = right_memory(memory_size, Kind::dmabuf);
    constexpr std::size_t length = 100;
    std::array<Request, 40> sends;
    std::array<Request, 40> receives;
    for (std::size_t i = 0; i < sends.size(); ++i) {
        sends[i] = send(length, 1, i);
    }
    settle();
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    for (std::size_t i = 0; i < receives.size(); ++i) {
        ASSERT_EQ(right().irecv(memory.memory(), memory.data(i * length), length, 1, receives[i]),
                  code(0));
    }
    const auto& loopback = right().endpoint()->shared.rails[0]->loopback;
    raise(loopback->queue_pair.native(), IBV_EVENT_QP_FATAL);
    ASSERT_TRUE(progress_until([&] { return !loopback || loopback->failed; }));
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    for (std::size_t i = 0; i < receives.size(); ++i) {
        ASSERT_EQ(complete(right(), receives[i]).error, code(0)) << i;
        EXPECT_TRUE(memory.bytes(i * length, length) == from_->bytes(i, length)) << i;
    }
}

TEST_F(AsyncEvents, of_other_objects_of_the_program_are_acknowledged_and_end_no_channel) {
    connect_with_memory();
    const ProtectionDomain& pd = right_end().protection_domain();
    CompletionQueue cq(pd.context());
    QueuePair pair = connect_to_itself(QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq}));
    raise(pair.native(), IBV_EVENT_QP_FATAL);
    ibv_async_event event{.element = {}, .event_type = IBV_EVENT_CQ_ERR};
    event.element.cq = cq.native();
    raise(device_of(right_end()), event);
    ASSERT_TRUE(progress_until([&] { return right_end().arm(); }));
    EXPECT_FALSE(is_readable(device_of(right_end())->async_fd));
    EXPECT_EQ(softverbs_unacknowledged_events(), 0);
    expect_usable();
    // ibv_destroy_qp(3) and ibv_destroy_cq(3) would block if an event was not acknowledged.
}

TEST_F(AsyncEvents, are_not_needed_to_find_a_failed_device_when_the_program_sleeps) {
    options_.read_async_events = false;
    use_devices(2);
    connect_with_memory();
    ASSERT_EQ(softverbs_fail_device(device_of(right_end(), 1)), 0);
    EXPECT_TRUE(progress_until([&] { return right_end().arm(); }));
    EXPECT_FALSE(right_end().works(1));
    EXPECT_TRUE(right_end().register_memory(to_->data(), 10).ok());
    expect_usable();
}

TEST_F(AsyncEvents, are_left_to_a_program_that_reads_them_itself) {
    options_.read_async_events = false;
    connect_with_memory();
    const Context& device = right_end().protection_domain().context();
    raise(device.native(), IBV_EVENT_DEVICE_FATAL);
    ASSERT_TRUE(progress_until([&] { return right_end().arm(); }));
    EXPECT_FALSE(is_readable(right_end().descriptor()));
    EXPECT_EQ(right().state(), code(0));
    const auto event = device.wait_async_event(0ms);
    ASSERT_TRUE(event.has_value());
    right_end().async_event(device, *event);
    EXPECT_TRUE(progress_until([&] { return right().state() == code(EIO); }));
    EXPECT_EQ(left().state(), code(0));
}

// The address of a destroyed queue pair may be that of a new one.
TEST_F(AsyncEvents, of_a_closed_channel_do_not_end_a_later_channel) {
    options_.queue_pairs_per_device = transport::max_queue_pairs_per_device;
    connect_with_memory();
    transport::Listener listener = listen();
    for (int i = 0; i < 1000; ++i) {
        progress_all(); // makes the first periodic check
    }
    bool used_again = false;
    for (int round = 0; round < 20 && !used_again; ++round) {
        const std::size_t before = record().queue_pairs.size();
        std::optional<std::pair<Channel, Channel>> first(connect_another(left_end(), listener));
        const std::vector<ibv_qp*> destroyed = queue_pairs(before);
        for (ibv_qp* const each : destroyed) {
            raise(each, IBV_EVENT_QP_FATAL);
        }
        // The left endpoint reads the events, and adds them to the queue of the right endpoint.
        EXPECT_TRUE(progress_until([&] { return left_end().arm(); }));
        first.reset();
        const std::size_t between = record().queue_pairs.size();
        auto second = connect_another(left_end(), listener);
        const std::vector<ibv_qp*> created = queue_pairs(between);
        used_again = std::ranges::find_first_of(created, destroyed) != created.end();
        EXPECT_TRUE(progress_until([&] { return right_end().arm(); }));
        EXPECT_EQ(second.second.state(), code(0)) << second.second.reason();
    }
    if (!used_again && (softverbs_test::address_sanitizer || softverbs_test::thread_sanitizer)) {
        GTEST_SKIP() << "the sanitizers keep freed memory, so that no address is used again";
    }
    EXPECT_TRUE(used_again) << "no queue pair has the address of a destroyed one";
}

} // namespace
} // namespace rdmabuf::testing
