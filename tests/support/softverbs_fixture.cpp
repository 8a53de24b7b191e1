// SPDX-License-Identifier: BSD-3-Clause
#include "softverbs_fixture.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <system_error>

#include "waiting.hpp"

namespace rdmabuf::testing {

using ::testing::IsEmpty;

namespace {

ibv_port_attr active_port(std::uint8_t link_layer) {
    ibv_port_attr port{};
    port.state = IBV_PORT_ACTIVE;
    port.max_mtu = IBV_MTU_4096;
    port.active_mtu = IBV_MTU_1024;
    port.max_msg_sz = std::uint32_t{1} << 31U;
    port.gid_tbl_len = 16;
    port.pkey_tbl_len = 8;
    port.phys_state = 5; // link up
    port.link_layer = link_layer;
    return port;
}

/// Sets limits that are low enough for a test to exceed them.
void set_limits(unsigned device, std::uint64_t guid) {
    const auto change = [guid](ibv_device_attr_ex& attributes) {
        ibv_device_attr& base = attributes.orig_attr;
        std::snprintf(base.fw_ver, sizeof(base.fw_ver), "1.2.3");
        base.node_guid = htobe64(guid);
        base.max_mr_size = std::uint64_t{1} << 40U;
        base.max_qp_wr = 1024;
        base.max_sge = 8;
        base.max_cqe = 4096;
        base.max_qp_rd_atom = 16;
        base.max_qp_init_rd_atom = 16;
        base.atomic_cap = IBV_ATOMIC_HCA;
        base.max_srq_wr = 512;
        base.max_srq_sge = 4;
        attributes.max_dm_size = 4096;
    };
    change_device(change, device);
}

void begin_anew(unsigned devices) {
    ASSERT_EQ(softverbs_reset("default", devices), 0);
}

void make_roce(unsigned device, std::uint64_t guid) {
    set_limits(device, guid);
    set_port(roce_port(), 1, device);
    const std::vector gids{gid_entry("fe80::2", 0, IBV_GID_TYPE_ROCE_V2),
                           gid_entry("::ffff:192.0.2.1", 1, IBV_GID_TYPE_ROCE_V2)};
    ASSERT_EQ(softverbs_set_gid_table(device, 1, gids.data(), gids.size()), 0);
}

/// Must run first: with its first queue pair, softverbs opens descriptors that it never closes.
void warm_up() {
    softverbs_hide_real_devices(1);
    use_roce_device();
    const Basics basics;
    static_cast<void>(QueuePair::prepare(basics.pd, {.send_cq = basics.cq, .recv_cq = basics.cq}));
}

/// Prepares a test. Returns the number of violations so far.
unsigned begin() {
    static const bool warm = [] {
        warm_up();
        return true;
    }();
    static_cast<void>(warm);
    use_roce_device();
    return softverbs_violations();
}

} // namespace

void use_roce_device() {
    begin_anew(1);
    make_roce(0, guid);
}

void use_roce_devices(std::initializer_list<const char*> names) {
    begin_anew(static_cast<unsigned>(names.size()));
    unsigned device = 0;
    for (const char* const name : names) {
        make_roce(device, device + 1U);
        ASSERT_EQ(softverbs_set_device_name(device, name), 0);
        ++device;
    }
}

void use_infiniband_device() {
    begin_anew(1);
    set_limits(0, guid);
    ibv_port_attr port = active_port(IBV_LINK_LAYER_INFINIBAND);
    port.lid = 17;
    set_port(port);
    set_gids({gid_entry("fe80::2", 0, IBV_GID_TYPE_IB)});
}

void use_no_device() {
    ASSERT_EQ(softverbs_reset("default", SOFTVERBS_NO_DEVICES), 0);
}

ibv_port_attr roce_port() {
    return active_port(IBV_LINK_LAYER_ETHERNET);
}

void set_port(const ibv_port_attr& attributes, std::uint8_t port, unsigned device) {
    ASSERT_EQ(softverbs_set_port_attr(device, port, &attributes), 0);
}

ibv_gid_entry gid_entry(const char* address, std::uint32_t index, ibv_gid_type type,
                        std::uint32_t port) {
    ibv_gid_entry entry{};
    if (::inet_pton(AF_INET6, address, entry.gid.raw) != 1) {
        throw std::invalid_argument(std::string(address) + " is no IPv6 address");
    }
    entry.gid_index = index;
    entry.port_num = port;
    entry.gid_type = type;
    entry.ndev_ifindex = 3;
    return entry;
}

void set_gids(const std::vector<ibv_gid_entry>& entries, std::uint8_t port) {
    ASSERT_EQ(softverbs_set_gid_table(0, port, entries.data(), entries.size()), 0);
}

void remove_feature(softverbs_feature feature) {
    ASSERT_EQ(softverbs_set_features(0, softverbs_features(0) & ~static_cast<unsigned>(feature)),
              0);
}

void fail_dmabufs(int before, int attach) {
    ASSERT_EQ(softverbs_set_dmabuf_errors(0, before, attach, 0), 0);
}

void fail_call(unsigned n, int error) {
    ASSERT_EQ(softverbs_fail_call(nullptr, n, error), 0);
}

void fail_next(const char* verb, int error) {
    ASSERT_EQ(softverbs_fail_call(verb, 1, error), 0) << verb;
}

bool all_failed() {
    return softverbs_pending_faults() == 0;
}

/// Returns the open descriptors, without those that a thread of softverbs has open for a moment.
static std::set<int> kept_descriptors() {
    EXPECT_TRUE(eventually([] { return is_at_rest(::getpid()); }));
    return open_descriptors();
}

SoftverbsTest::SoftverbsTest()
    : violations_(begin()), descriptors_(kept_descriptors()), teardown_failures_(std::in_place) {
    forget_calls();
}

// Not in TearDown(), which runs before the members of the derived class are destroyed.
SoftverbsTest::~SoftverbsTest() {
    EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), 0U) << "objects were leaked";
    // A thread of softverbs may have a descriptor open for a moment.
    EXPECT_TRUE(eventually([&] { return open_descriptors() == descriptors_; }))
        << "descriptors were leaked: " << ::testing::PrintToString(open_descriptors())
        << ", before: " << ::testing::PrintToString(descriptors_);
    EXPECT_EQ(softverbs_violations(), violations_) << "what was in use was to be destroyed";
    EXPECT_EQ(softverbs_unacknowledged_events(), 0U);
    EXPECT_THAT(take_teardown_failures(), IsEmpty());
    EXPECT_TRUE(all_failed()) << "a planned failure did not happen";
    softverbs_clear_faults();
    forget_calls();
}

std::vector<TeardownFailures::Failure> SoftverbsTest::take_teardown_failures() {
    auto failures = TeardownFailures::seen();
    teardown_failures_.reset();
    teardown_failures_.emplace();
    return failures;
}

QueuePairAddress own_address(const Context& context) {
    QueuePairAddress address;
    address.gid = context.best_gid(1).gid;
    address.lid = context.port(1).lid;
    return address;
}

UniqueFd make_dmabuf(std::size_t size) {
    UniqueFd fd(::memfd_create("in place of a dma-buf", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
        throw std::system_error(errno, std::system_category(), "memfd_create or ftruncate");
    }
    return fd;
}

} // namespace rdmabuf::testing
