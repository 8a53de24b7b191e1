// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <chrono>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <rdmabuf/context.hpp>
#include <rdmabuf/shared_receive_queue.hpp>

#include "softverbs_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::error_of;
using testing::eventually;
using testing::fails_with;
using ::testing::Field;
using ::testing::HasSubstr;
using testing::is_asleep;
using ::testing::IsEmpty;
using testing::lasts_at_least;
using testing::SoftverbsTest;

class ContextTest : public SoftverbsTest {
  protected:
    static void make_inactive(std::initializer_list<unsigned> devices) {
        for (const unsigned device : devices) {
            ibv_port_attr port = testing::roce_port();
            port.state = IBV_PORT_DOWN;
            testing::set_port(port, 1, device);
        }
    }
    /// The n-th device to be opened cannot be.
    static void close(unsigned n, int error) {
        ASSERT_EQ(softverbs_fail_call("ibv_open_device", n, error), 0);
    }
};

TEST_F(ContextTest, OpensByNameAndByGuid) {
    testing::use_roce_devices({"one", "two"});
    EXPECT_EQ(Context::open("two").device_name(), "two");
    EXPECT_EQ(Context::open(std::uint64_t{1}).device_name(), "one");
}

TEST_F(ContextTest, ThatMayNotBeOpenedSaysWhatToCheck) {
    for (const int error : {EACCES, EPERM}) {
        close(1, error);
        EXPECT_THAT(error_of([] { static_cast<void>(Context::open("soft0")); }),
                    fails_with("ibv_open_device", error, "soft0: no permission"));
        close(1, error);
        EXPECT_THAT(error_of([] { static_cast<void>(Context::open("soft0")); }),
                    fails_with("ibv_open_device", error, "--device=/dev/infiniband"));
    }
    close(1, ENODEV);
    EXPECT_STREQ(error_of([] { static_cast<void>(Context::open("soft0")); })->what(),
                 "ibv_open_device: No such device (ENODEV): soft0");
}

TEST_F(ContextTest, OpenedFirstIsTheFirstWithAnActivePort) {
    testing::use_roce_devices({"down", "up", "other"});
    make_inactive({0});
    EXPECT_EQ(Context::open_first().device_name(), "up");
}

TEST_F(ContextTest, OpenedFirstMayHaveItsActivePortSecond) {
    testing::use_roce_devices({"down", "second"});
    make_inactive({0, 1});
    ASSERT_EQ(softverbs_set_port_count(1, 2), 0);
    testing::set_port(testing::roce_port(), 2, 1);
    EXPECT_EQ(Context::open_first().device_name(), "second");
}

TEST_F(ContextTest, OpenedFirstFallsBackToTheFirstThatOpens) {
    testing::use_roce_devices({"closed", "down", "other"});
    close(1, EACCES);
    make_inactive({1, 2});
    EXPECT_EQ(Context::open_first().device_name(), "down");
}

TEST_F(ContextTest, OpenedFirstTellsWhyTheLastCouldNotBeOpened) {
    testing::use_roce_devices({"one", "two"});
    close(1, ENODEV);
    close(2, EACCES);
    EXPECT_THAT(error_of([] { static_cast<void>(Context::open_first()); }),
                fails_with("ibv_open_device", EACCES, "two: no permission"));
}

TEST_F(ContextTest, TellsWhatTheDeviceCanDo) {
    testing::change_device(
        [](ibv_device_attr_ex& changed) { changed.odp_caps.general_caps = IBV_ODP_SUPPORT; });
    const DeviceAttributes attributes = Context::open_first().attributes();
    EXPECT_EQ(attributes.max_mr_size(), std::uint64_t{1} << 40U);
    EXPECT_EQ(attributes.max_dm_size(), 4096U);
    EXPECT_EQ(attributes.odp_capabilities(), static_cast<std::uint64_t>(IBV_ODP_SUPPORT));
    EXPECT_TRUE(attributes.atomics());
    EXPECT_EQ(attributes.port_count(), 1);
    EXPECT_EQ(attributes.firmware_version(), "1.2.3");
    testing::change_device(
        [](ibv_device_attr_ex& changed) { changed.orig_attr.atomic_cap = IBV_ATOMIC_NONE; });
    EXPECT_FALSE(Context::open_first().attributes().atomics());
}

TEST_F(ContextTest, RefusesPortsItDoesNotHave) {
    const Context context = Context::open_first();
    for (const int port : {0, 2, 255}) {
        EXPECT_THAT(
            error_of([&, number = static_cast<std::uint8_t>(port)] {
                static_cast<void>(context.port(number));
            }),
            fails_with("ibv_query_port", EINVAL,
                       "port " + std::to_string(port) + " of soft0, which has ports 1 to 1"));
    }
}

// GIDs

class GidTable : public ContextTest {
  protected:
    static Context with(const std::vector<ibv_gid_entry>& entries) {
        testing::set_gids(entries);
        return Context::open_first();
    }
    static void set_table_length(int length) {
        ibv_port_attr port = testing::roce_port();
        port.gid_tbl_len = length;
        testing::set_port(port);
    }
};

TEST_F(GidTable, HasTheUsedEntriesOfAPortInOrder) {
    ASSERT_EQ(softverbs_set_port_count(0, 2), 0);
    testing::set_gids({testing::gid_entry("fe80::99", 0, IBV_GID_TYPE_ROCE_V2, 2)}, 2);
    const Context context = with({testing::gid_entry("::ffff:192.0.2.1", 5, IBV_GID_TYPE_ROCE_V2),
                                  testing::gid_entry("::", 2, IBV_GID_TYPE_ROCE_V2),
                                  testing::gid_entry("fe80::2", 1, IBV_GID_TYPE_ROCE_V1)});
    const auto table = context.gid_table(1);
    ASSERT_EQ(table.size(), 2U);
    EXPECT_EQ(table[0].index, 1);
    EXPECT_EQ(to_string(table[0].gid), "fe80::2");
    EXPECT_EQ(table[0].type, GidType::roce_v1);
    EXPECT_EQ(table[0].port, 1);
    EXPECT_EQ(table[0].netdev_ifindex, 3U);
    EXPECT_EQ(table[1].index, 5);
    EXPECT_EQ(table[1].type, GidType::roce_v2);
    EXPECT_THAT(context.gid_table(2), ElementsAre(Field(&GidEntry::port, 2)));
    EXPECT_THAT(context.gid_table(3), IsEmpty());
}

TEST_F(GidTable, LeavesOutIndicesThatNoAddressVectorCanName) {
    set_table_length(1024);
    const Context context = with({testing::gid_entry("2001:db8::1", 255, IBV_GID_TYPE_ROCE_V2),
                                  testing::gid_entry("2001:db8::2", 256, IBV_GID_TYPE_ROCE_V2)});
    EXPECT_THAT(context.gid_table(1), ElementsAre(Field(&GidEntry::index, 255)));
}

TEST_F(GidTable, PrefersEntriesInThePromisedOrder) {
    // The better, the later: of equal ones the first would be chosen.
    std::vector<ibv_gid_entry> entries{
        testing::gid_entry("fe80::1", 5, IBV_GID_TYPE_IB),
        testing::gid_entry("::ffff:192.0.2.1", 6, IBV_GID_TYPE_ROCE_V1),
        testing::gid_entry("fe80::1", 7, IBV_GID_TYPE_ROCE_V2),
        testing::gid_entry("2001:db8::1", 8, IBV_GID_TYPE_ROCE_V2),
        testing::gid_entry("::ffff:192.0.2.1", 9, IBV_GID_TYPE_ROCE_V2),
    };
    for (std::uint8_t best = 9; best >= 5; --best) {
        EXPECT_EQ(with(entries).best_gid(1).index, best);
        entries.pop_back();
    }
}

TEST_F(GidTable, PrefersTheFirstOfEqualEntries) {
    const Context context = with({testing::gid_entry("::ffff:192.0.2.2", 4, IBV_GID_TYPE_ROCE_V2),
                                  testing::gid_entry("::ffff:192.0.2.1", 3, IBV_GID_TYPE_ROCE_V2)});
    EXPECT_EQ(context.best_gid(1).index, 3);
}

TEST_F(GidTable, WithoutAnAddressSaysToGiveTheInterfaceOne) {
    for (const int length : {0, 16}) {
        set_table_length(length);
        EXPECT_THAT(error_of([] { static_cast<void>(with({}).best_gid(1)); }),
                    fails_with("ibv_query_gid_table", EADDRNOTAVAIL,
                               "port 1 of soft0 has no GID: give its network interface an IP"));
    }
}

// Asynchronous events

class AsyncEvents : public ContextTest {
  protected:
    Context context_ = Context::open_first();

    void raise(const ibv_async_event& event) const {
        EXPECT_EQ(softverbs_raise_event(context_.native(), &event), 0);
    }
    AsyncEvent event(ibv_event_type type, void* object) {
        ibv_async_event raised{};
        raised.event_type = type;
        // One member of the union stands for all pointers.
        raised.element.qp = static_cast<ibv_qp*>(object);
        raise(raised);
        return context_.wait_async_event(0ms).value();
    }
    void expect_named(std::initializer_list<ibv_event_type> types, AsyncEventSource source,
                      void* object) {
        for (const ibv_event_type type : types) {
            const AsyncEvent seen = event(type, object);
            EXPECT_EQ(seen.type, type);
            EXPECT_EQ(seen.source, source) << seen.name();
            EXPECT_EQ(seen.object, object) << seen.name();
            EXPECT_EQ(seen.port, 0) << seen.name();
        }
    }
    AsyncEvent port_event(ibv_event_type type, int port) {
        ibv_async_event raised{};
        raised.event_type = type;
        raised.element.port_num = port;
        raise(raised);
        return context_.wait_async_event(0ms).value();
    }
};

TEST_F(AsyncEvents, AboutAnObjectNameIt) {
    const ProtectionDomain pd(context_);
    const CompletionQueue cq(context_);
    const SharedReceiveQueue srq(pd);
    const PreparedQueuePair qp = QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq});
    expect_named({IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
                  IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG,
                  IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_LAST_WQE_REACHED},
                 AsyncEventSource::queue_pair, qp.native());
    expect_named({IBV_EVENT_CQ_ERR}, AsyncEventSource::completion_queue, cq.native());
    expect_named({IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED},
                 AsyncEventSource::shared_receive_queue, srq.native());
    const AsyncEvent of_qp = event(IBV_EVENT_QP_FATAL, qp.native());
    EXPECT_TRUE(of_qp.is_of(qp));
    EXPECT_FALSE(of_qp.is_of(cq));
    // Which softverbs has none of.
    ibv_wq wq{};
    wq.context = context_.native();
    expect_named({IBV_EVENT_WQ_FATAL}, AsyncEventSource::work_queue, &wq);
}

TEST_F(AsyncEvents, AboutAPortNameIt) {
    for (const ibv_event_type type :
         {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE,
          IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE}) {
        const AsyncEvent seen = port_event(type, 2);
        EXPECT_EQ(seen.type, type);
        EXPECT_EQ(seen.port, 2) << seen.name();
        EXPECT_EQ(seen.object, nullptr) << seen.name();
        EXPECT_EQ(seen.source, AsyncEventSource::port) << seen.name();
    }
}

TEST_F(AsyncEvents, AboutTheDeviceNameNothing) {
    const AsyncEvent seen = port_event(IBV_EVENT_DEVICE_FATAL, 2);
    EXPECT_EQ(seen.object, nullptr);
    EXPECT_EQ(seen.port, 0);
    EXPECT_EQ(seen.source, AsyncEventSource::device);
    CompletionQueue closed(context_);
    closed.close();
    EXPECT_FALSE(seen.is_of(closed));
    EXPECT_STREQ(seen.name(), ibv_event_type_str(IBV_EVENT_DEVICE_FATAL));
}

TEST_F(AsyncEvents, AreReportedByEpollAndTakenWithoutWaiting) {
    const CompletionQueue cq(context_);
    const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event wanted{.events = EPOLLIN, .data = {}};
    ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, context_.async_fd(), &wanted), 0);
    EXPECT_NE(::fcntl(context_.async_fd(), F_GETFL) & O_NONBLOCK, 0);
    epoll_event found{};
    EXPECT_EQ(::epoll_wait(epoll.get(), &found, 1, 0), 0);
    EXPECT_FALSE(context_.get_async_event());
    ibv_async_event raised{};
    raised.event_type = IBV_EVENT_CQ_ERR;
    raised.element.cq = cq.native();
    raise(raised);
    EXPECT_EQ(::epoll_wait(epoll.get(), &found, 1, -1), 1);
    const std::optional<PendingAsyncEvent> pending = context_.get_async_event();
    ASSERT_TRUE(pending);
    EXPECT_TRUE(pending->event().is_of(cq));
    EXPECT_EQ(pending->event().type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(pending->native()->element.cq, cq.native());
    EXPECT_EQ(softverbs_unacknowledged_events(), 1U);
    EXPECT_EQ(::epoll_wait(epoll.get(), &found, 1, 0), 0);
}

TEST_F(AsyncEvents, AreWaitedForAsLongAsSaid) {
    EXPECT_FALSE(context_.wait_async_event(0ms));
    EXPECT_TRUE(lasts_at_least(30ms, [&] { EXPECT_FALSE(context_.wait_async_event(30ms)); }));
}

TEST_F(AsyncEvents, EndAWaitWithoutLimit) {
    std::thread device([this, waiting = ::gettid()] {
        ibv_async_event raised{};
        raised.event_type = IBV_EVENT_PORT_ERR;
        raised.element.port_num = 1;
        EXPECT_TRUE(eventually([&] { return is_asleep(waiting); }));
        raise(raised);
    });
    EXPECT_EQ(context_.wait_async_event(wait_forever)->type, IBV_EVENT_PORT_ERR);
    device.join();
}

TEST_F(AsyncEvents, ThatAnotherThreadTakesDoNotProlongAWait) {
    ibv_async_event raised{};
    raised.event_type = IBV_EVENT_DEVICE_FATAL;
    raise(raised);
    bool stolen = false;
    testing::before_each_call([&](const char* verb) {
        if (std::string_view(verb) == "ibv_get_async_event" && !std::exchange(stolen, true)) {
            EXPECT_TRUE(context_.wait_async_event(0ms));
        }
    });
    EXPECT_TRUE(lasts_at_least(50ms, [&] { EXPECT_FALSE(context_.wait_async_event(50ms)); }));
    EXPECT_TRUE(stolen);
    testing::before_each_call(nullptr);
}

TEST_F(AsyncEvents, ThatCannotBeReadAreAnError) {
    ibv_async_event raised{};
    raised.event_type = IBV_EVENT_DEVICE_FATAL;
    raise(raised);
    testing::fail_next("ibv_get_async_event", EIO);
    EXPECT_THAT(error_of([this] { static_cast<void>(context_.wait_async_event(1s)); }),
                fails_with("ibv_get_async_event", EIO, ""));
    testing::fail_next("ibv_get_async_event", EIO);
    EXPECT_THAT(error_of([this] { static_cast<void>(context_.get_async_event()); }),
                fails_with("ibv_get_async_event", EIO, ""));
}

// dma-buf import

class DmaBufImport : public ContextTest {
  protected:
    static Availability with(int error) {
        testing::fail_dmabufs(error);
        return Context::open_first().dmabuf_import();
    }
};

TEST_F(DmaBufImport, IsThereWhenABadDescriptorIsLookedAt) {
    EXPECT_EQ(to_string(with(0)), "yes");
    const auto& asked = testing::record().registrations.at(0);
    EXPECT_EQ(asked.fd, -1);
    EXPECT_EQ(asked.start, 0U);
    EXPECT_GT(asked.length, 0U);
    EXPECT_EQ(asked.iova, 0U);
    EXPECT_EQ(asked.access, 0U);
}

TEST_F(DmaBufImport, NeedsAKernelThatKnowsIt) {
    EXPECT_EQ(to_string(with(EPROTONOSUPPORT)),
              "no: this kernel's uverbs cannot register dma-bufs; use Linux 5.12 or newer");
}

TEST_F(DmaBufImport, NeedsADriverAndAProviderThatKnowIt) {
    const Availability availability = with(EOPNOTSUPP);
    EXPECT_FALSE(availability);
    EXPECT_THAT(availability.reason, HasSubstr("driver of soft0 or its rdma-core provider"));
    EXPECT_THAT(availability.remedy, HasSubstr("mlx5"));
}

TEST_F(DmaBufImport, IsNotThereWhenTheAnswerIsNoAnswer) {
    const Availability availability = with(EINVAL);
    EXPECT_FALSE(availability);
    EXPECT_THAT(availability.reason, HasSubstr("failed with Invalid argument (EINVAL)"));
}

TEST_F(DmaBufImport, OfAProviderThatTakesAnythingIsNotTrusted) {
    ASSERT_EQ(softverbs_set_dmabuf_errors(0, 0, 0, 1), 0);
    const Availability availability = Context::open_first().dmabuf_import();
    EXPECT_FALSE(availability);
    EXPECT_THAT(availability.reason, HasSubstr("registered descriptor -1"));
    EXPECT_THAT(availability.remedy, HasSubstr("maintainers"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), 0U);
}

TEST(LinkSpeed, IsTheRateOfALaneTimesTheNumberOfLanes) {
    struct Case {
        std::uint8_t speed, width;
        std::uint32_t expected;
    };
    // The last ones are of an unknown speed or width.
    for (const Case& one :
         {Case{1, 1, 2500}, Case{2, 2, 20000}, Case{8, 2, 40000}, Case{16, 2, 56000},
          Case{32, 2, 100000}, Case{32, 16, 50000}, Case{128, 2, 400000}, Case{128, 4, 800000},
          Case{3, 1, 0}, Case{0, 2, 0}, Case{32, 0, 0}}) {
        ibv_port_attr port{};
        port.active_speed = one.speed;
        port.active_width = one.width;
        EXPECT_EQ(link_speed(port), one.expected) << +one.speed << " times " << +one.width;
    }
}

} // namespace
} // namespace rdmabuf
