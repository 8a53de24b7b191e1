// SPDX-License-Identifier: BSD-3-Clause
// SRD queue pairs of EFA, on the profile efa of softverbs.
#include <dlfcn.h>
#include <endian.h>
#include <infiniband/efadv.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/address_handle.hpp>
#include <rdmabuf/memory_region.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/srd_completion_queue.hpp>

#include "softverbs_fixture.hpp"

// The library finds these functions in the program. They call those of softverbs, and change or
// record what passes.
namespace {

struct Efadv {
    int query_error = 0;
    std::uint32_t removed_caps = 0;
    std::vector<ibv_qp_init_attr_ex> created;
    std::vector<efadv_qp_init_attr> created_extra;
};
Efadv efadv;

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" {

int efadv_query_device(ibv_context* ibvctx, efadv_device_attr* attr, std::uint32_t inlen) {
    if (efadv.query_error != 0) {
        return efadv.query_error;
    }
    const int error = next<decltype(efadv_query_device)>("efadv_query_device")(ibvctx, attr, inlen);
    attr->device_caps &= ~efadv.removed_caps;
    return error;
}

ibv_qp* efadv_create_qp_ex(ibv_context* ibvctx, ibv_qp_init_attr_ex* attr_ex,
                           efadv_qp_init_attr* efa_attr, std::uint32_t inlen) {
    efadv.created.push_back(*attr_ex);
    efadv.created_extra.push_back(*efa_attr);
    return next<decltype(efadv_create_qp_ex)>("efadv_create_qp_ex")(ibvctx, attr_ex, efa_attr,
                                                                    inlen);
}

} // extern "C"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using ::testing::HasSubstr;
using testing::record;

constexpr const char* create = "efadv_create_qp_ex";
constexpr const char* query = "efadv_query_device";
constexpr const char* modify = "ibv_modify_qp";
constexpr auto srd = QueuePairType::scalable_reliable_datagram;
constexpr std::uint32_t caps_rdma_write = 1U << 3U;
/// EFA has no remote atomics.
constexpr Access access = Access::local_write | Access::remote_read | Access::remote_write;

/// One of two processes: a protection domain with memory, and a queue pair.
struct Process {
    explicit Process(const Context& context) : pd(context), cq(context) {}

    PreparedQueuePair prepare(const QueuePairOptions& options) {
        PreparedQueuePair prepared = QueuePair::prepare(pd, options);
        address = prepared.address();
        return prepared;
    }
    void start(QueuePairOptions options) {
        options.send_cq = options.recv_cq = cq;
        qp.emplace(prepare(options).activate());
    }
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const {
        return region.sge(offset, static_cast<std::uint32_t>(length));
    }
    [[nodiscard]] WorkCompletion next() const {
        WorkCompletion completion{};
        EXPECT_EQ(cq.wait({&completion, 1}, std::chrono::seconds(20)), 1U) << "no completion";
        return completion;
    }
    WorkCompletion expect(std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) const {
        const WorkCompletion completion = next();
        EXPECT_EQ(completion.wr_id, wr_id);
        EXPECT_EQ(completion.status, status) << describe(completion);
        return completion;
    }

    ProtectionDomain pd;
    CompletionQueue cq;
    std::vector<std::byte> memory = std::vector<std::byte>(1U << 20U);
    MemoryRegion region{pd, memory.data(), memory.size(), {.access = access}};
    QueuePairAddress address;
    std::optional<QueuePair> qp;
};

/// Two processes on an EFA device. Their protection domains differ, so that the address handles of
/// one are not those of the other.
class Srd : public testing::SoftverbsTest {
  public:
    Srd(const Srd&) = delete;
    Srd& operator=(const Srd&) = delete;
    ~Srd() override { efadv = {}; }

  protected:
    Srd() {
        efadv = {};
        EXPECT_EQ(softverbs_reset("efa", 1), 0);
        context_.emplace(Context::open_first());
        a_.emplace(*context_);
        b_.emplace(*context_);
    }

    [[nodiscard]] QueuePairOptions options() const {
        return {.send_cq = a_->cq, .recv_cq = a_->cq, .type = srd, .max_inline_data = 32};
    }
    /// Starts both queue pairs, and creates an address handle at a for b.
    void start() { start(options()); }
    void start(const QueuePairOptions& wanted) {
        a_->start(wanted);
        b_->start(wanted);
        to_b_.emplace(a_->pd, b_->address, AddressHandleOptions{});
    }
    /// Creates an address handle at b for a, which RDMA to b needs.
    void let_b_know_a() { to_a_.emplace(b_->pd, a_->address, AddressHandleOptions{}); }
    [[nodiscard]] Destination b() const { return to_b_->destination(b_->address); }
    [[nodiscard]] RemoteAddress memory_of_b(std::size_t offset = 0) const {
        return b_->region.remote().at(offset);
    }
    auto refusal(const QueuePairOptions& wanted) {
        return error_of([&] { static_cast<void>(QueuePair::prepare(a_->pd, wanted)); });
    }
    /// Checks that a failed request had no effect on the queue pairs.
    void expect_usable() const {
        EXPECT_EQ(a_->qp->state(), IBV_QPS_RTS);
        EXPECT_EQ(b_->qp->state(), IBV_QPS_RTS);
        ASSERT_TRUE(b_->qp->post_recv(b_->sge(0, 64), 90));
        ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 64), b(), {.wr_id = 91}));
        a_->expect(91);
        b_->expect(90);
    }
    void use_default_device() {
        b_.reset();
        a_.reset();
        context_.reset();
        testing::use_roce_device();
        context_.emplace(Context::open_first());
        a_.emplace(*context_);
    }

    std::optional<Context> context_;
    std::optional<Process> a_, b_;
    std::optional<AddressHandle> to_b_, to_a_;
};

// What the device supports

TEST_F(Srd, DeviceReportsItsLimitsAndCapabilities) {
    const Availability available = context_->srd();
    EXPECT_TRUE(available);
    EXPECT_EQ(available.reason, "messages, and RDMA reads and writes of at most 1073741824 bytes");
    const SrdAttributes device = context_->srd_attributes();
    EXPECT_TRUE(device.rdma_read);
    EXPECT_TRUE(device.rdma_write);
    EXPECT_TRUE(device.rnr_retry);
    EXPECT_TRUE(device.sender_gid);
    EXPECT_EQ(device.max_rdma_size, 1U << 30U);
    EXPECT_EQ(device.max_send_wr, 4096U);
    EXPECT_EQ(device.max_recv_wr, 32768U);
    EXPECT_EQ(device.max_send_sge, 2U);
    EXPECT_EQ(device.max_recv_sge, 3U);
    EXPECT_EQ(device.max_inline_data, 32U);
    EXPECT_EQ(context_->max_message_size(), 8928U);
}

TEST_F(Srd, DeviceReportsWhichRdmaItLacks) {
    efadv.removed_caps = caps_rdma_write;
    EXPECT_EQ(context_->srd().reason, "messages, and RDMA reads of at most 1073741824 bytes");
    EXPECT_FALSE(context_->srd_attributes().rdma_write);
    efadv.removed_caps |= EFADV_DEVICE_ATTR_CAPS_RDMA_READ | EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID |
                          EFADV_DEVICE_ATTR_CAPS_RNR_RETRY;
    EXPECT_EQ(context_->srd().reason, "messages only, no RDMA");
    const SrdAttributes device = context_->srd_attributes();
    EXPECT_FALSE(device.rdma_read);
    EXPECT_FALSE(device.rnr_retry);
    EXPECT_FALSE(device.sender_gid);
    efadv.removed_caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
    EXPECT_THAT(context_->srd().reason, HasSubstr("and RDMA writes of"));
}

TEST_F(Srd, DeviceOfAnotherDriverHasNone) {
    use_default_device();
    const Availability available = context_->srd();
    EXPECT_FALSE(available);
    EXPECT_EQ(available.reason, "soft0 is not an EFA device");
    EXPECT_EQ(available.remedy, "use QueuePairType::reliable_connected");
    const auto refused = fails_with(query, EOPNOTSUPP,
                                    "soft0 is not an EFA device; use "
                                    "QueuePairType::reliable_connected");
    EXPECT_THAT(error_of([&] { static_cast<void>(context_->srd_attributes()); }), refused);
    EXPECT_THAT(refusal(options()), refused);
    EXPECT_TRUE(efadv.created.empty());
}

TEST_F(Srd, FailedQueryIsReportedWithItsErrno) {
    efadv.query_error = ENOMEM;
    EXPECT_THAT(context_->srd().reason, HasSubstr("efadv_query_device on soft0 failed"));
    EXPECT_THAT(context_->srd().reason, HasSubstr("ENOMEM"));
    EXPECT_THAT(refusal(options()), fails_with(query, ENOMEM, "on soft0 failed"));
}

TEST_F(Srd, QueryOfAClosedContextIsRefused) {
    Context closed = Context::open_first();
    closed.close();
    EXPECT_THAT(error_of([&] { static_cast<void>(closed.srd()); }), fails_with(query, EBADF, ""));
    EXPECT_THAT(error_of([&] { static_cast<void>(closed.srd_attributes()); }),
                fails_with(query, EBADF, ""));
}

// Creation and states

TEST_F(Srd, QueuePairIsCreatedWithTheOperationsOfTheDevice) {
    constexpr std::uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    constexpr std::uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    const PreparedQueuePair all = QueuePair::prepare(a_->pd, options());
    ASSERT_EQ(efadv.created.size(), 1U);
    EXPECT_EQ(efadv.created[0].qp_type, IBV_QPT_DRIVER);
    EXPECT_EQ(efadv.created[0].cap.max_inline_data, 32U);
    EXPECT_EQ(efadv.created[0].send_ops_flags, send | write | IBV_QP_EX_WITH_RDMA_READ);
    EXPECT_EQ(efadv.created_extra[0].driver_qp_type, std::uint32_t{EFADV_QP_DRIVER_TYPE_SRD});
    EXPECT_EQ(efadv.created_extra[0].comp_mask, 0U);
    efadv.removed_caps = caps_rdma_write;
    const PreparedQueuePair reads = QueuePair::prepare(a_->pd, options());
    EXPECT_EQ(efadv.created[1].send_ops_flags, send | IBV_QP_EX_WITH_RDMA_READ);
    efadv.removed_caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
    const PreparedQueuePair writes = QueuePair::prepare(a_->pd, options());
    EXPECT_EQ(efadv.created[2].send_ops_flags, send | write);
    EXPECT_TRUE(record().qps.empty()) << "not by ibv_create_qp";
}

TEST_F(Srd, QueuePairIsActivatedWithoutAPeer) {
    QueuePairOptions wanted = options();
    wanted.qkey = 0x456;
    PreparedQueuePair prepared = QueuePair::prepare(a_->pd, wanted);
    const QueuePair qp = std::move(prepared).activate();
    EXPECT_EQ(qp.type(), srd);
    EXPECT_EQ(qp.state(), IBV_QPS_RTS);
    EXPECT_TRUE(qp.extended());
    const auto& changes = record().modifications;
    ASSERT_EQ(changes.size(), 3U);
    EXPECT_EQ(changes[0].mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    EXPECT_EQ(changes[0].attributes.qkey, 0x456U);
    EXPECT_EQ(changes[1].mask, int{IBV_QP_STATE});
    EXPECT_EQ(changes[2].mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

TEST_F(Srd, RnrRetriesAreSetIfTheyAreLimited) {
    QueuePairOptions wanted = options();
    wanted.rnr_retry = 2;
    start(wanted);
    const auto& change = record().modifications.at(2);
    EXPECT_EQ(change.mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY);
    EXPECT_EQ(change.attributes.rnr_retry, 2);
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8), b(), {.wr_id = 1}));
    a_->expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
    expect_usable();
}

TEST_F(Srd, AddressHasWhatAPeerNeeds) {
    start();
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context_->native(), 1, 0, &gid), 0);
    const QueuePairAddress sent = b_->address;
    EXPECT_EQ(sent.type, srd);
    EXPECT_EQ(sent.number, b_->qp->number());
    EXPECT_EQ(sent.qkey, 0x11111111U);
    EXPECT_EQ(sent.gid, Gid::from_native(gid));
    EXPECT_EQ(QueuePairAddress::decode(sent.encode()).value(), sent);
    const Destination to = to_b_->destination(sent);
    EXPECT_EQ(to.ah, to_b_->native());
    EXPECT_EQ(to.queue_pair, sent.number);
    EXPECT_EQ(to.qkey, sent.qkey);
}

TEST_F(Srd, ConnectingIsRefused) {
    PreparedQueuePair prepared = QueuePair::prepare(a_->pd, options());
    const QueuePairAddress own = prepared.address();
    EXPECT_THAT(error_of([&] { static_cast<void>(std::move(prepared).connect(own)); }),
                fails_with(modify, EINVAL, "datagram queue pairs (UD, SRD) have no peer"));
}

TEST_F(Srd, EveryLimitThatIsPassedIsNamed) {
    QueuePairOptions wanted = options();
    wanted.max_send_wr = 4097;
    wanted.max_recv_wr = 32769;
    wanted.max_send_sge = 3;
    wanted.max_recv_sge = 4;
    wanted.max_inline_data = 33;
    EXPECT_THAT(refusal(wanted),
                fails_with(create, EINVAL,
                           "SRD queue pair, max_send_wr 4097 is above the device's limit of 4096, "
                           "max_recv_wr 32769 is above the device's limit of 32768, "
                           "max_send_sge 3 is above the device's limit of 2, "
                           "max_recv_sge 4 is above the device's limit of 3, "
                           "max_inline_data 33 is above the device's limit of 32"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 0U);
}

TEST_F(Srd, AtomicsAndAccessFlagsAreRefusedWithTheReason) {
    QueuePairOptions wanted = options();
    wanted.access = access | Access::remote_atomic;
    EXPECT_THAT(refusal(wanted), fails_with(create, EOPNOTSUPP, "SRD queue pairs have no atomics"));
    wanted.access = Access::local_write;
    EXPECT_THAT(refusal(wanted),
                fails_with(create, EOPNOTSUPP, "restrict peers by the access of the memory"));
    EXPECT_TRUE(efadv.created.empty());
}

TEST_F(Srd, QueuePairThatCannotInitialiseIsDestroyed) {
    testing::fail_next(modify, EIO);
    EXPECT_THAT(refusal(options()), fails_with(modify, EIO, "to INIT on port 1"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 0U);
}

TEST_F(Srd, ErrorOfAConnectedQueuePairOnEfaNamesSrd) {
    for (const QueuePairType type :
         {QueuePairType::reliable_connected, QueuePairType::unreliable_connected}) {
        for (const auto extended : {ExtendedInterface::automatic, ExtendedInterface::required}) {
            QueuePairOptions wanted = options();
            wanted.type = type;
            wanted.max_inline_data = 0;
            wanted.extended = extended;
            const auto error = refusal(wanted);
            ASSERT_TRUE(error);
            EXPECT_EQ(error->error(), EOPNOTSUPP);
            EXPECT_THAT(error->what(),
                        HasSubstr(std::string(to_string(type)) +
                                  " queue pair: soft0 is an EFA device, which has SRD queue "
                                  "pairs instead: use QueuePairType"));
        }
    }
}

// Messages

TEST_F(Srd, MessageGoesToTheDestinationOfTheRequest) {
    start();
    Process c(*context_);
    c.start(options());
    testing::fill(a_->memory, 3);
    ASSERT_TRUE(b_->qp->post_recv(b_->sge(0, 8928), 1));
    ASSERT_TRUE(c.qp->post_recv(c.sge(0, 8928), 2));
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8928), b(), {.wr_id = 3}));
    EXPECT_EQ(a_->expect(3).opcode, IBV_WC_SEND);
    const WorkCompletion received = b_->expect(1);
    EXPECT_EQ(received.byte_len, 8928U);
    EXPECT_EQ(received.src_qp, a_->qp->number());
    EXPECT_TRUE(std::equal(a_->memory.begin(), a_->memory.begin() + 8928, b_->memory.begin()));
    // The address handle is of the port, so it also leads to c, which is on the same port.
    WorkBatch batch = a_->qp->batch();
    const ibv_sge entry = a_->sge(100, 50);
    batch.send_to({&entry, 1}, to_b_->destination(c.address), {.wr_id = 4});
    ASSERT_TRUE(batch.complete());
    a_->expect(4);
    EXPECT_EQ(c.expect(2).byte_len, 50U);
    EXPECT_TRUE(std::equal(c.memory.begin(), c.memory.begin() + 50, a_->memory.begin() + 100));
}

TEST_F(Srd, MessagesArriveOnceAndInAnyOrder) {
    constexpr std::size_t count = 32;
    start();
    for (std::size_t i = 0; i < count; ++i) {
        a_->memory[i * 64] = static_cast<std::byte>(i);
        ASSERT_TRUE(b_->qp->post_recv(b_->sge(i * 64, 64), i));
    }
    // One batch: softverbs also sends delayed requests after 50 µs, which must not happen between
    // two posts here.
    WorkBatch batch = a_->qp->batch();
    for (std::size_t i = 0; i < count; ++i) {
        const ibv_sge entry = a_->sge(i * 64, 64);
        batch.send_to({&entry, 1}, b(), {.wr_id = i});
    }
    ASSERT_TRUE(batch.complete());
    std::vector<std::size_t> completed;
    std::vector<std::size_t> arrived;
    for (std::size_t i = 0; i < count; ++i) {
        completed.push_back(a_->next().wr_id);
        b_->expect(i); // receives are taken in their order
        arrived.push_back(static_cast<std::size_t>(b_->memory[i * 64]));
    }
    EXPECT_FALSE(std::ranges::is_sorted(completed));
    EXPECT_FALSE(std::ranges::is_sorted(arrived));
    std::vector<std::size_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_TRUE(std::ranges::is_permutation(completed, all));
    EXPECT_TRUE(std::ranges::is_permutation(arrived, all));
}

TEST_F(Srd, RequestsMustBeSignaled) {
    start();
    EXPECT_EQ(a_->qp->post_send_to(a_->sge(0, 8), b(), {.flags = SendFlags::none}), Status(EINVAL));
    EXPECT_EQ(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b(), {.flags = SendFlags::none}),
              Status(EINVAL));
}

TEST_F(Srd, MessageWithAnotherQkeyFailsAndHasNoOtherEffect) {
    start();
    Destination wrong = b();
    wrong.qkey += 1;
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8), wrong, {.wr_id = 1}));
    const WorkCompletion failed = a_->expect(1, IBV_WC_REM_INV_RD_REQ_ERR);
    EXPECT_THAT(describe(failed), HasSubstr("does not exist, or has another Q_Key"));
    expect_usable();
}

TEST_F(Srd, CompletionNamesTheAddressHandleOfTheSender) {
    start();
    ASSERT_TRUE(b_->qp->post_recv(b_->sge(0, 64), 1));
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8), b(), {.wr_id = 2}));
    a_->expect(2);
    EXPECT_EQ(b_->expect(1).slid, unknown_address);
    let_b_know_a();
    ASSERT_TRUE(b_->qp->post_recv(b_->sge(0, 64), 3));
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8), b(), {.wr_id = 4}));
    a_->expect(4);
    EXPECT_EQ(b_->expect(3).slid, to_a_->number());
}

TEST_F(Srd, AddressHandleOfAnotherDeviceHasNoNumber) {
    use_default_device();
    const AddressHandle ah(a_->pd, testing::own_address(*context_), {});
    EXPECT_THAT(error_of([&] { static_cast<void>(ah.number()); }),
                fails_with("efadv_query_ah", EOPNOTSUPP, "only EFA"));
}

TEST_F(Srd, NumberOfAClosedAddressHandleIsRefused) {
    start();
    to_b_->close();
    EXPECT_THAT(error_of([&] { static_cast<void>(to_b_->number()); }),
                fails_with("efadv_query_ah", EBADF, ""));
}

/// Polls until there is a completion.
WorkCompletion next_with_sender(const SrdCompletionQueue& cq, Gid& sender) {
    WorkCompletion completion{};
    int count = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (count == 0 && std::chrono::steady_clock::now() < end) {
        count = cq.poll(completion, sender);
    }
    EXPECT_EQ(count, 1);
    return completion;
}

TEST_F(Srd, ReceiverRepliesToAnUnknownSender) {
    const SrdCompletionQueue received(*context_, {.depth = 16});
    a_->start(options());
    QueuePairOptions wanted = options();
    wanted.send_cq = b_->cq;
    wanted.recv_cq = received.queue();
    b_->qp.emplace(b_->prepare(wanted).activate());
    to_b_.emplace(a_->pd, b_->address, AddressHandleOptions{});
    Gid sender = a_->address.gid;
    WorkCompletion completion{};
    EXPECT_EQ(received.poll(completion, sender), 0);

    ASSERT_TRUE(b_->qp->post_recv(b_->sge(0, 64), 1));
    ASSERT_TRUE(b_->qp->post_recv(b_->sge(64, 64), 2));
    testing::fill(std::span(a_->memory).first(48), 1);
    WorkBatch batch = a_->qp->batch();
    const ibv_sge entry = a_->sge(0, 48);
    batch.send_to({&entry, 1}, b(), {.wr_id = 3});
    ASSERT_TRUE(batch.complete());
    a_->expect(3);
    completion = next_with_sender(received, sender);
    EXPECT_TRUE(succeeded(completion)) << describe(completion);
    EXPECT_EQ(completion.wr_id, 1U);
    EXPECT_EQ(completion.opcode, IBV_WC_RECV);
    EXPECT_EQ(completion.byte_len, 48U);
    EXPECT_EQ(completion.qp_num, b_->qp->number());
    EXPECT_EQ(completion.src_qp, a_->qp->number());
    EXPECT_EQ(completion.slid, unknown_address);
    EXPECT_EQ(sender, a_->address.gid);

    const QueuePairAddress peer{
        .type = srd, .number = completion.src_qp, .qkey = options().qkey, .gid = sender};
    const AddressHandle reply(b_->pd, peer, {});
    ASSERT_TRUE(a_->qp->post_recv(a_->sge(1000, 64), 4));
    ASSERT_TRUE(b_->qp->post_send_to(b_->sge(0, 48), reply.destination(peer), {.wr_id = 5}));
    EXPECT_EQ(a_->expect(4).byte_len, 48U);
    b_->expect(5);
    EXPECT_TRUE(std::equal(a_->memory.begin(), a_->memory.begin() + 48, a_->memory.begin() + 1000));

    // The sender is known now: the completion has the number of its address handle.
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8), b(), {.wr_id = 6}));
    a_->expect(6);
    completion = next_with_sender(received, sender);
    EXPECT_EQ(completion.wr_id, 2U);
    EXPECT_EQ(completion.slid, reply.number());
    EXPECT_TRUE(sender.is_zero());
    b_->qp.reset();
}

TEST_F(Srd, CompletionQueueWithSendersReportsImmediateDataAndFailures) {
    const SrdCompletionQueue all(*context_);
    QueuePairOptions wanted = options();
    wanted.send_cq = wanted.recv_cq = all.queue();
    a_->qp.emplace(a_->prepare(wanted).activate());
    const AddressHandle to_itself(a_->pd, a_->address, {});
    const Destination itself = to_itself.destination(a_->address);
    Gid sender;
    ASSERT_TRUE(a_->qp->post_recv(std::span<const ibv_sge>(), 1));
    ASSERT_TRUE(a_->qp->post_write_imm_to(a_->sge(0, 8), itself, a_->region.remote().at(64), 77,
                                          {.wr_id = 2}));
    for (int i = 0; i < 2; ++i) {
        const WorkCompletion completion = next_with_sender(all, sender);
        EXPECT_TRUE(succeeded(completion)) << describe(completion);
        EXPECT_EQ(completion.opcode,
                  completion.wr_id == 1 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RDMA_WRITE);
        if (completion.wr_id == 1) {
            EXPECT_EQ(completion.imm_data, htobe32(77));
            EXPECT_EQ(completion.wc_flags, unsigned{IBV_WC_WITH_IMM});
        }
    }
    Destination wrong = itself;
    wrong.qkey += 1;
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8), wrong, {.wr_id = 3}));
    const WorkCompletion failed = next_with_sender(all, sender);
    EXPECT_EQ(failed.wr_id, 3U);
    EXPECT_EQ(failed.status, IBV_WC_REM_INV_RD_REQ_ERR);
    EXPECT_EQ(failed.vendor_err, 9U);
    EXPECT_EQ(failed.qp_num, a_->qp->number());
    EXPECT_TRUE(sender.is_zero());
    a_->qp.reset();
}

TEST_F(Srd, CompletionQueueWithSendersKeepsItsChannel) {
    std::optional<CompletionChannel> channel(std::in_place, *context_);
    std::optional<SrdCompletionQueue> all;
    all.emplace(*context_, CompletionQueueOptions{.channel = &*channel});
    EXPECT_THAT(error_of([&] { channel->close(); }),
                fails_with("ibv_destroy_comp_channel", EBUSY, ""));
    channel.reset();
    WorkCompletion completion{};
    EXPECT_EQ(all->queue().wait({&completion, 1}, std::chrono::milliseconds(5)), 0U);
    EXPECT_NE(all->queue().native()->channel, nullptr);
}

TEST_F(Srd, CompletionQueueWithSendersNeedsADeviceThatReportsThem) {
    const auto refused = [&] {
        return error_of([&] { static_cast<void>(SrdCompletionQueue(*context_)); });
    };
    Context closed = Context::open_first();
    closed.close();
    EXPECT_THAT(error_of([&] { static_cast<void>(SrdCompletionQueue(closed)); }),
                fails_with("efadv_create_cq", EBADF, ""));
    testing::fail_next("ibv_create_cq_ex", EOPNOTSUPP);
    efadv.removed_caps = EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
    EXPECT_THAT(refused(), fails_with("efadv_create_cq", EOPNOTSUPP,
                                      "soft0 does not report the GIDs of senders"));
    use_default_device();
    EXPECT_THAT(refused(), fails_with("efadv_create_cq", EOPNOTSUPP, "soft0 is not an EFA device"));
}

// RDMA

TEST_F(Srd, WritesToAndReadsFromThePeer) {
    constexpr std::size_t size = 300'000;
    start();
    let_b_know_a();
    testing::fill(a_->memory, 5);
    ASSERT_TRUE(a_->qp->post_write_to(a_->sge(0, size), b(), memory_of_b(3), {.wr_id = 1}));
    EXPECT_EQ(a_->expect(1).opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(b_->memory[2], std::byte{0});
    EXPECT_TRUE(std::equal(a_->memory.begin(), a_->memory.begin() + size, b_->memory.begin() + 3));
    EXPECT_EQ(b_->memory[size + 3], std::byte{0});
    ASSERT_TRUE(a_->qp->post_read_from(a_->sge(500'000, size), b(), memory_of_b(3), {.wr_id = 2}));
    EXPECT_EQ(a_->expect(2).opcode, IBV_WC_SEND); // libefa reports reads so
    EXPECT_TRUE(
        std::equal(a_->memory.begin(), a_->memory.begin() + size, a_->memory.begin() + 500'000));
}

TEST_F(Srd, WriteWithImmediateCompletesAReceive) {
    start();
    let_b_know_a();
    testing::fill(std::span(a_->memory).first(4096), 6);
    ASSERT_TRUE(b_->qp->post_recv(std::span<const ibv_sge>(), 1));
    ASSERT_TRUE(
        a_->qp->post_write_imm_to(a_->sge(0, 4096), b(), memory_of_b(), 0x01020304, {.wr_id = 2}));
    const WorkCompletion received = b_->expect(1);
    EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(received.imm_data, htobe32(0x01020304));
    EXPECT_EQ(received.byte_len, 4096U);
    EXPECT_TRUE(std::equal(a_->memory.begin(), a_->memory.begin() + 4096, b_->memory.begin()));
    EXPECT_EQ(a_->expect(2).opcode, IBV_WC_RDMA_WRITE);
}

TEST_F(Srd, RequestsOfOneBatchGoToSeveralPeers) {
    start();
    let_b_know_a();
    Process c(*context_);
    c.start(options());
    const AddressHandle a_at_c(c.pd, a_->address, {});
    testing::fill(a_->memory, 7);
    const ibv_sge entry = a_->sge(0, 100);
    const ibv_sge result = a_->sge(1000, 100);
    b_->memory[200] = std::byte{0x5a};
    WorkBatch batch = a_->qp->batch();
    batch.write_to({&entry, 1}, to_b_->destination(c.address), c.region.remote().at(0),
                   {.wr_id = 1});
    batch.read_from({&result, 1}, b(), memory_of_b(200), {.wr_id = 2});
    ASSERT_TRUE(batch.complete());
    std::array<std::uint64_t, 2> completed{a_->next().wr_id, a_->next().wr_id};
    std::ranges::sort(completed);
    EXPECT_EQ(completed, (std::array<std::uint64_t, 2>{1, 2}));
    EXPECT_TRUE(std::equal(c.memory.begin(), c.memory.begin() + 100, a_->memory.begin()));
    EXPECT_EQ(a_->memory[1000], std::byte{0x5a});
}

TEST_F(Srd, RdmaNeedsAnAddressHandleAtTheTarget) {
    start();
    ASSERT_TRUE(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b(), {.wr_id = 1}));
    const WorkCompletion failed = a_->expect(1, IBV_WC_REM_OP_ERR);
    EXPECT_THAT(describe(failed), HasSubstr("on EFA, the target has no address handle"));
    let_b_know_a();
    ASSERT_TRUE(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b(), {.wr_id = 2}));
    a_->expect(2);
    expect_usable();
}

TEST_F(Srd, RdmaThatTheDeviceLacksIsRefused) {
    efadv.removed_caps = caps_rdma_write | EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
    start();
    EXPECT_FALSE(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b()));
    EXPECT_FALSE(a_->qp->post_write_imm_to(a_->sge(0, 8), b(), memory_of_b(), 1));
    EXPECT_FALSE(a_->qp->post_read_from(a_->sge(0, 8), b(), memory_of_b()));
    // libefa has no functions for operations that a queue pair was created without.
    ibv_qp_ex* const native = ibv_qp_to_qp_ex(a_->qp->native());
    native->wr_rdma_write = nullptr;
    native->wr_rdma_write_imm = nullptr;
    native->wr_rdma_read = nullptr;
    EXPECT_EQ(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b()), Status(EOPNOTSUPP));
    EXPECT_EQ(a_->qp->post_write_imm_to(a_->sge(0, 8), b(), memory_of_b(), 1), Status(EOPNOTSUPP));
    EXPECT_EQ(a_->qp->post_read_from(a_->sge(0, 8), b(), memory_of_b()), Status(EOPNOTSUPP));
    expect_usable();
}

TEST_F(Srd, RdmaNeedsTheExtendedInterface) {
    QueuePairOptions wanted = options();
    wanted.extended = ExtendedInterface::off;
    start(wanted);
    EXPECT_FALSE(a_->qp->extended());
    EXPECT_EQ(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b()), Status(EOPNOTSUPP));
    EXPECT_EQ(a_->qp->post_write_imm_to(a_->sge(0, 8), b(), memory_of_b(), 1), Status(EOPNOTSUPP));
    EXPECT_EQ(a_->qp->post_read_from(a_->sge(0, 8), b(), memory_of_b()), Status(EOPNOTSUPP));
    expect_usable(); // messages are posted with ibv_post_send
}

} // namespace
} // namespace rdmabuf
