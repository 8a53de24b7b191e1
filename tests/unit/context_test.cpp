// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <thread>

#include <rdmabuf/context.hpp>

#include "standin_fixture.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::error_of;
using testing::fails_with;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StandinTest;

class ContextTest : public StandinTest {
  protected:
    static standin::Device inactive(const char* name) {
        standin::Device device = standin::roce_device(name);
        device.ports[0].attributes.state = IBV_PORT_DOWN;
        return device;
    }
    static standin::Device closed(const char* name, int error) {
        standin::Device device = standin::roce_device(name);
        device.open_error = error;
        return device;
    }
};

TEST_F(ContextTest, OpensByNameAndByGuid) {
    standin::reset({standin::roce_device("one", 1), standin::roce_device("two", 2)});
    EXPECT_EQ(Context::open("two").device_name(), "two");
    EXPECT_EQ(Context::open(std::uint64_t{1}).device_name(), "one");
}

TEST_F(ContextTest, OfAnUnknownNameListsTheDevicesThereAre) {
    EXPECT_THAT(error_of([] { static_cast<void>(Context::open("mlx5_0")); }),
                fails_with("ibv_get_device_list", ENODEV, "there are standin0"));
}

TEST_F(ContextTest, ThatMayNotBeOpenedSaysWhatToCheck) {
    for (const int error : {EACCES, EPERM}) {
        standin::device().open_error = error;
        EXPECT_THAT(error_of([] { static_cast<void>(Context::open("standin0")); }),
                    fails_with("ibv_open_device", error, "standin0: no permission"));
        EXPECT_THAT(error_of([] { static_cast<void>(Context::open("standin0")); }),
                    fails_with("ibv_open_device", error, "--device=/dev/infiniband"));
    }
    standin::device().open_error = ENODEV;
    EXPECT_STREQ(error_of([] { static_cast<void>(Context::open("standin0")); })->what(),
                 "ibv_open_device: No such device (ENODEV): standin0");
}

TEST_F(ContextTest, OpenedFirstIsTheFirstWithAnActivePort) {
    standin::reset({inactive("down"), standin::roce_device("up"), standin::roce_device("other")});
    EXPECT_EQ(Context::open_first().device_name(), "up");
}

TEST_F(ContextTest, OpenedFirstMayHaveItsActivePortSecond) {
    standin::Device device = inactive("second");
    device.ports.push_back(standin::roce_device().ports[0]);
    standin::reset({inactive("down"), device});
    EXPECT_EQ(Context::open_first().device_name(), "second");
}

TEST_F(ContextTest, OpenedFirstFallsBackToTheFirstThatOpens) {
    standin::reset({closed("closed", EACCES), inactive("down"), inactive("other")});
    EXPECT_EQ(Context::open_first().device_name(), "down");
}

TEST_F(ContextTest, OpenedFirstSkipsWhatCannotBeOpened) {
    standin::reset({closed("closed", EACCES), standin::roce_device("up")});
    EXPECT_EQ(Context::open_first().device_name(), "up");
}

TEST_F(ContextTest, OpenedFirstTellsWhyTheLastCouldNotBeOpened) {
    standin::reset({closed("one", ENODEV), closed("two", EACCES)});
    EXPECT_THAT(error_of([] { static_cast<void>(Context::open_first()); }),
                fails_with("ibv_open_device", EACCES, "two: no permission"));
}

TEST_F(ContextTest, OpenedFirstOfNoDeviceSaysWhatToCheck) {
    standin::reset({});
    EXPECT_THAT(error_of([] { static_cast<void>(Context::open_first()); }),
                fails_with("ibv_get_device_list", ENODEV, "no RDMA device"));
}

TEST_F(ContextTest, TellsWhatTheDeviceCanDo) {
    standin::device().attributes.odp_caps.general_caps = IBV_ODP_SUPPORT;
    const DeviceAttributes attributes = Context::open_first().attributes();
    EXPECT_EQ(attributes.max_mr_size(), std::uint64_t{1} << 40U);
    EXPECT_EQ(attributes.max_dm_size(), 4096U);
    EXPECT_EQ(attributes.odp_capabilities(), static_cast<std::uint64_t>(IBV_ODP_SUPPORT));
    EXPECT_TRUE(attributes.atomics());
    EXPECT_EQ(attributes.port_count(), 1);
    EXPECT_EQ(attributes.firmware_version(), "1.2.3");
    standin::device().attributes.orig_attr.atomic_cap = IBV_ATOMIC_NONE;
    EXPECT_FALSE(Context::open_first().attributes().atomics());
}

TEST_F(ContextTest, TellsAboutItsPorts) {
    const Context context = Context::open_first();
    const ibv_port_attr port = context.port(1);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
}

TEST_F(ContextTest, RefusesPortsItDoesNotHave) {
    const Context context = Context::open_first();
    for (const int port : {0, 2, 255}) {
        EXPECT_THAT(
            error_of([&, number = static_cast<std::uint8_t>(port)] {
                static_cast<void>(context.port(number));
            }),
            fails_with("ibv_query_port", EINVAL,
                       "port " + std::to_string(port) + " of standin0, which has ports 1 to 1"));
    }
}

// GIDs

class GidTable : public ContextTest {
  protected:
    static Context with(std::vector<ibv_gid_entry> entries) {
        standin::device().ports[0].gids = std::move(entries);
        return Context::open_first();
    }
};

TEST_F(GidTable, HasTheUsedEntriesOfAPortInOrder) {
    standin::device().ports.push_back(standin::device().ports[0]);
    standin::device().ports[1].gids = {standin::gid_entry("fe80::99", 0, IBV_GID_TYPE_ROCE_V2, 2)};
    const Context context = with({standin::gid_entry("::ffff:192.0.2.1", 5, IBV_GID_TYPE_ROCE_V2),
                                  standin::gid_entry("::", 2, IBV_GID_TYPE_ROCE_V2),
                                  standin::gid_entry("fe80::2", 1, IBV_GID_TYPE_ROCE_V1)});
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
    standin::device().ports[0].attributes.gid_tbl_len = 1024;
    const Context context = with({standin::gid_entry("2001:db8::1", 255, IBV_GID_TYPE_ROCE_V2),
                                  standin::gid_entry("2001:db8::2", 256, IBV_GID_TYPE_ROCE_V2)});
    EXPECT_THAT(context.gid_table(1), ElementsAre(Field(&GidEntry::index, 255)));
}

TEST_F(GidTable, OfADeviceWithoutEntriesIsEmpty) {
    standin::device().ports[0].attributes.gid_tbl_len = 0;
    EXPECT_THAT(with({}).gid_table(1), IsEmpty());
}

TEST_F(GidTable, PrefersEntriesInThePromisedOrder) {
    // The better, the later: of equal ones the first would be chosen.
    std::vector<ibv_gid_entry> entries{
        standin::gid_entry("fe80::1", 5, IBV_GID_TYPE_IB),
        standin::gid_entry("::ffff:192.0.2.1", 6, IBV_GID_TYPE_ROCE_V1),
        standin::gid_entry("fe80::1", 7, IBV_GID_TYPE_ROCE_V2),
        standin::gid_entry("2001:db8::1", 8, IBV_GID_TYPE_ROCE_V2),
        standin::gid_entry("::ffff:192.0.2.1", 9, IBV_GID_TYPE_ROCE_V2),
    };
    for (std::uint8_t best = 9; best >= 5; --best) {
        EXPECT_EQ(with(entries).best_gid(1).index, best);
        entries.pop_back();
    }
}

TEST_F(GidTable, PrefersTheFirstOfEqualEntries) {
    const Context context = with({standin::gid_entry("::ffff:192.0.2.2", 4, IBV_GID_TYPE_ROCE_V2),
                                  standin::gid_entry("::ffff:192.0.2.1", 3, IBV_GID_TYPE_ROCE_V2)});
    EXPECT_EQ(context.best_gid(1).index, 3);
}

TEST_F(GidTable, WithoutAnAddressSaysToGiveTheInterfaceOne) {
    for (const int length : {0, 16}) {
        standin::device().ports[0].attributes.gid_tbl_len = length;
        EXPECT_THAT(error_of([] { static_cast<void>(with({}).best_gid(1)); }),
                    fails_with("ibv_query_gid_table", EADDRNOTAVAIL,
                               "port 1 of standin0 has no GID: give its network interface an IP"));
    }
}

// Asynchronous events

class AsyncEvents : public ContextTest {
  protected:
    Context context_ = Context::open_first();

    AsyncEvent event(ibv_event_type type, const void* object) {
        ibv_async_event raised{};
        raised.event_type = type;
        // One member of the union stands for all pointers.
        raised.element.qp = static_cast<ibv_qp*>(const_cast<void*>(object));
        standin::raise_event(context_.native(), raised);
        return context_.wait_async_event(0ms).value();
    }
    AsyncEvent port_event(ibv_event_type type, int port) {
        ibv_async_event raised{};
        raised.event_type = type;
        raised.element.port_num = port;
        standin::raise_event(context_.native(), raised);
        return context_.wait_async_event(0ms).value();
    }
};

TEST_F(AsyncEvents, AboutAnObjectNameIt) {
    const int object = 0;
    for (const ibv_event_type type :
         {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
          IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
          IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR,
          IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_WQ_FATAL}) {
        const AsyncEvent seen = event(type, &object);
        EXPECT_EQ(seen.type, type);
        EXPECT_EQ(seen.object, &object) << seen.name();
        EXPECT_EQ(seen.port, 0) << seen.name();
    }
}

TEST_F(AsyncEvents, AboutAPortNameIt) {
    for (const ibv_event_type type :
         {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE,
          IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE}) {
        const AsyncEvent seen = port_event(type, 2);
        EXPECT_EQ(seen.type, type);
        EXPECT_EQ(seen.port, 2) << seen.name();
        EXPECT_EQ(seen.object, nullptr) << seen.name();
    }
}

TEST_F(AsyncEvents, AboutTheDeviceNameNothing) {
    const AsyncEvent seen = port_event(IBV_EVENT_DEVICE_FATAL, 2);
    EXPECT_EQ(seen.object, nullptr);
    EXPECT_EQ(seen.port, 0);
    EXPECT_STREQ(seen.name(), ibv_event_type_str(IBV_EVENT_DEVICE_FATAL));
}

TEST_F(AsyncEvents, AreWaitedForAsLongAsSaid) {
    EXPECT_FALSE(context_.wait_async_event(0ms));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(context_.wait_async_event(30ms));
    EXPECT_GE(std::chrono::steady_clock::now() - start, 29ms);
}

TEST_F(AsyncEvents, EndAWaitWithoutLimit) {
    std::thread device([this] {
        ibv_async_event raised{};
        raised.event_type = IBV_EVENT_PORT_ERR;
        raised.element.port_num = 1;
        std::this_thread::sleep_for(10ms);
        standin::raise_event(context_.native(), raised);
    });
    EXPECT_EQ(context_.wait_async_event(wait_forever)->type, IBV_EVENT_PORT_ERR);
    device.join();
}

TEST_F(AsyncEvents, ThatCannotBeReadAreAnError) {
    ibv_async_event raised{};
    raised.event_type = IBV_EVENT_DEVICE_FATAL;
    standin::raise_event(context_.native(), raised);
    standin::fail_next("ibv_get_async_event", EIO);
    EXPECT_THAT(error_of([this] { static_cast<void>(context_.wait_async_event(1s)); }),
                fails_with("ibv_get_async_event", EIO, ""));
}

// dma-buf import

class DmaBufImport : public ContextTest {
  protected:
    static Availability with(int error) {
        standin::device().dmabuf_error = error;
        return Context::open_first().dmabuf_import();
    }
};

TEST_F(DmaBufImport, IsThereWhenABadDescriptorIsLookedAt) {
    EXPECT_EQ(to_string(with(0)), "yes");
    const auto& asked = standin::record().registrations.at(0);
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
    EXPECT_THAT(availability.reason, HasSubstr("driver of standin0 or its rdma-core provider"));
    EXPECT_THAT(availability.remedy, HasSubstr("mlx5"));
}

TEST_F(DmaBufImport, IsNotThereWhenTheAnswerIsNoAnswer) {
    const Availability availability = with(EINVAL);
    EXPECT_FALSE(availability);
    EXPECT_THAT(availability.reason, HasSubstr("failed with Invalid argument (EINVAL)"));
}

TEST_F(DmaBufImport, OfAProviderThatTakesAnythingIsNotTrusted) {
    standin::device().dmabuf_unchecked = true;
    const Availability availability = with(0);
    EXPECT_FALSE(availability);
    EXPECT_THAT(availability.reason, HasSubstr("registered descriptor -1"));
    EXPECT_THAT(availability.remedy, HasSubstr("maintainers"));
    EXPECT_EQ(standin::live(), 0U);
}

} // namespace
} // namespace rdmabuf
