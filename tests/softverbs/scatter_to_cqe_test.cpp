// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>

#include "pair_test.hpp"

// Scatter-to-CQE with profile mlx5. As in libmlx5, the CPU copies small payloads to the addresses
// in the work request when the program polls the completion.

namespace {

using namespace softverbs_test;

constexpr std::byte old{0x11};
constexpr std::byte sent{0x77};
/// MLX5DV_QP_CREATE_OOO_DP, which older headers do not define.
constexpr std::uint32_t out_of_order = 1U << 7U;

class ScatterToCqe : public PairTest {
  protected:
    void SetUp() override {
        ::unsetenv("MLX5_SCATTER_TO_CQE");
        ::unsetenv("MLX5_CQE_SIZE");
        PairTest::SetUp();
        use("mlx5");
    }
    void TearDown() override {
        shifted_.reset();
        PairTest::TearDown();
        ::unsetenv("MLX5_SCATTER_TO_CQE");
        ::unsetenv("MLX5_CQE_SIZE");
    }
    /// Replaces the queue pair of @p side by one from mlx5dv_create_qp().
    void make_mlx5(Side& side, std::uint32_t flags, bool signal_all = false) {
        ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, side.cq.get());
        init.sq_sig_all = signal_all ? 1 : 0;
        mlx5dv_qp_init_attr extra{};
        extra.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
        extra.create_flags = flags;
        side.qp.reset(mlx5dv_create_qp(context.get(), &init, &extra));
        ASSERT_NE(side.qp, nullptr);
    }
    /// Registers the first bytes of b's memory with an iova that is greater than their address by
    /// distance.
    void shift() {
        shifted_.reset(
            ibv_reg_mr_iova(pd.get(), b.memory.data(), distance, b.address(distance), full_access));
        ASSERT_NE(shifted_, nullptr);
    }
    /// Sends @p length bytes to the shifted region, and polls the completion.
    ibv_wc send_shifted(std::uint32_t length) {
        a.fill(sent);
        b.fill(old);
        shift();
        receive(b, 1, {b.address(distance), length, shifted_->lkey});
        EXPECT_EQ(post(a, Request(a, b, IBV_WR_SEND, 2, length)), 0);
        expect(a, 2, IBV_WC_SUCCESS);
        return expect(b, 1, IBV_WC_SUCCESS);
    }
    /// Checks that the data was copied to the address in the work request, not to the memory of the
    /// region.
    void expect_copied_to_the_address() const {
        EXPECT_EQ(b.memory[0], old);
        EXPECT_EQ(b.memory[distance], sent);
    }
    void expect_written_to_the_region() const {
        EXPECT_EQ(b.memory[0], sent);
        EXPECT_EQ(b.memory[distance], old);
    }

    static constexpr std::size_t distance = 8192;
    UniqueMr shifted_;
};

TEST_F(ScatterToCqe, DataOfASmallReceiveIsInMemoryOnlyOnceItsCompletionIsPolled) {
    start();
    a.fill(sent);
    b.fill(old);
    receive(b, 1, 32);
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 2, 32)), 0);
    expect(a, 2, IBV_WC_SUCCESS); // so the responder has the message
    EXPECT_EQ(b.memory[0], old);
    const ibv_wc completion = expect(b, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.byte_len, 32U);
    EXPECT_EQ(std::count(b.memory.begin(), b.memory.begin() + 33, sent), 32);
}

TEST_F(ScatterToCqe, SmallReceiveIsCopiedToTheAddressThatTheWorkRequestGives) {
    start();
    send_shifted(32);
    expect_copied_to_the_address();
    send_shifted(33);
    expect_written_to_the_region();
}

TEST_F(ScatterToCqe, CompletionEntriesOf128BytesHold64) {
    ::setenv("MLX5_CQE_SIZE", "128", 1);
    start();
    send_shifted(64);
    expect_copied_to_the_address();
    send_shifted(65);
    expect_written_to_the_region();
}

TEST_F(ScatterToCqe, EnvironmentSwitchesItOff) {
    ::setenv("MLX5_SCATTER_TO_CQE", "0", 1);
    start();
    send_shifted(8);
    expect_written_to_the_region();
}

TEST_F(ScatterToCqe, CreateFlagSwitchesItOffAndThatForOutOfOrderPlacementDoesNot) {
    for (const std::uint32_t flags :
         {std::uint32_t{MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE}, out_of_order}) {
        make();
        make_mlx5(b, flags);
        join();
        send_shifted(8);
        flags == out_of_order ? expect_copied_to_the_address() : expect_written_to_the_region();
    }
}

TEST_F(ScatterToCqe, OutOfOrderPlacementHalvesTheNumberOfReceives) {
    make();
    mlx5dv_qp_init_attr extra{};
    extra.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, b.cq.get());
    const auto half = static_cast<std::uint32_t>(attributes().max_qp_wr / 2);
    for (const std::uint32_t flags : {0U, out_of_order}) {
        extra.create_flags = flags;
        init.cap.max_recv_wr = half;
        EXPECT_NE(UniqueQp(mlx5dv_create_qp(context.get(), &init, &extra)), nullptr);
        init.cap.max_recv_wr = half + 1;
        errno = 0;
        const UniqueQp larger(mlx5dv_create_qp(context.get(), &init, &extra));
        EXPECT_EQ(larger == nullptr, flags == out_of_order);
        EXPECT_EQ(errno, flags == out_of_order ? EINVAL : 0);
    }
}

TEST_F(ScatterToCqe, OtherProfilesDoNotHaveIt) {
    use("default");
    start();
    send_shifted(8);
    expect_written_to_the_region();
}

TEST_F(ScatterToCqe, KeyOfASmallReceiveIsChecked) {
    start();
    receive(b, 1, {b.address(), 8, b.mr->lkey + 0x1000});
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 2, 8)), 0);
    expect(a, 2, IBV_WC_REM_OP_ERR);
    expect(b, 1, IBV_WC_LOC_PROT_ERR);
}

TEST_F(ScatterToCqe, ExtendedPollingCopiesAsWell) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 16;
    ibv_cq_ex* const extended = ibv_create_cq_ex(context.get(), &attributes);
    ASSERT_NE(extended, nullptr);
    make();
    b.qp.reset();
    b.cq.reset(ibv_cq_ex_to_cq(extended));
    b.qp = make_qp(IBV_QPT_RC, b.cq.get());
    join();
    a.fill(sent);
    b.fill(old);
    receive(b, 1, 8);
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 2, 8)), 0);
    expect(a, 2, IBV_WC_SUCCESS);
    EXPECT_EQ(b.memory[0], old);
    ibv_poll_cq_attr none{};
    ASSERT_EQ(ibv_start_poll(extended, &none), 0);
    EXPECT_EQ(b.memory[0], sent);
    ibv_end_poll(extended);
}

TEST_F(ScatterToCqe, DataOfADestroyedQueuePairIsForgotten) {
    start();
    b.fill(old);
    receive(b, 1, 8);
    a.fill(sent);
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 2, 8)), 0);
    expect(a, 2, IBV_WC_SUCCESS);
    b.qp.reset();
    EXPECT_TRUE(is_empty(b.cq.get()));
    EXPECT_EQ(b.memory[0], old);
}

TEST_F(ScatterToCqe, SmallReadIsCopiedAtThePollOnlyIfAllRequestsAreSignaled) {
    for (const bool signal_all : {false, true}) {
        make(IBV_QPT_RC,
             [signal_all](ibv_qp_init_attr_ex& init) { init.sq_sig_all = signal_all ? 1 : 0; });
        join();
        a.fill(sent);
        b.fill(old);
        shift();
        Request read(b, a, IBV_WR_RDMA_READ, 3, 32);
        read.sge = {b.address(distance), 32, shifted_->lkey};
        ASSERT_EQ(post(b, read), 0);
        EXPECT_EQ(expect(b, 3, IBV_WC_SUCCESS).byte_len, 32U);
        signal_all ? expect_copied_to_the_address() : expect_written_to_the_region();
    }
}

TEST_F(ScatterToCqe, CreateFlagAllowsItForSignaledAtomics) {
    make();
    make_mlx5(b, MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE);
    join();
    a.fill(sent);
    b.fill(old);
    shift();
    Request add(b, a, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 8);
    add.sge = {b.address(distance), 8, shifted_->lkey};
    ASSERT_EQ(post(b, add), 0);
    expect(b, 3, IBV_WC_SUCCESS);
    expect_copied_to_the_address();
}

class Mlx5Functions : public ScatterToCqe {};

TEST_F(Mlx5Functions, SupportOnlyTheProfileOfTheirDriver) {
    EXPECT_TRUE(mlx5dv_is_supported(context->device));
    mlx5dv_context out{};
    out.comp_mask = MLX5DV_CONTEXT_MASK_SWP | MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK;
    EXPECT_EQ(mlx5dv_query_device(context.get(), &out), 0);
    EXPECT_EQ(out.comp_mask, std::uint64_t{MLX5DV_CONTEXT_MASK_SWP});
    EXPECT_EQ(out.flags, std::uint64_t{MLX5DV_CONTEXT_FLAGS_CQE_V1});
    use("default");
    EXPECT_FALSE(mlx5dv_is_supported(context->device));
    EXPECT_EQ(mlx5dv_query_device(context.get(), &out), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_open_device(context->device, nullptr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Mlx5Functions, OpenADeviceButGiveNoAccessToItsFirmware) {
    mlx5dv_context_attr attributes{};
    const UniqueContext second(mlx5dv_open_device(context->device, &attributes));
    EXPECT_NE(second, nullptr);
    attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    EXPECT_EQ(mlx5dv_open_device(context->device, &attributes), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Mlx5Functions, RefuseQueuePairsAsLibmlx5Does) {
    const UniqueCq cq = make_cq(16);
    const auto refused = [&](std::uint64_t mask, std::uint32_t flags) {
        ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
        mlx5dv_qp_init_attr extra{};
        extra.comp_mask = mask;
        extra.create_flags = flags;
        errno = 0;
        EXPECT_EQ(mlx5dv_create_qp(context.get(), &init, &extra), nullptr);
        return errno;
    };
    constexpr std::uint64_t has_flags = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    EXPECT_EQ(refused(has_flags, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
                                     MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE),
              EINVAL);
    EXPECT_EQ(refused(has_flags, 1U << 30U), EINVAL);
    EXPECT_EQ(refused(std::uint64_t{1} << 40U, 0), EINVAL);
    EXPECT_EQ(refused(MLX5DV_QP_INIT_ATTR_MASK_DC, 0), EINVAL);
    EXPECT_EQ(refused(has_flags, MLX5DV_QP_CREATE_SIG_PIPELINING), EOPNOTSUPP);
}

TEST_F(Mlx5Functions, ShowNoQueuesAndNoDataDirectFunction) {
    make();
    mlx5dv_qp out{};
    mlx5dv_obj object{};
    object.qp = {a.qp.get(), &out};
    EXPECT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), EOPNOTSUPP);
    using GetPath = int (*)(ibv_context*, char*, std::size_t);
    const auto get_path = reinterpret_cast<GetPath>(
        ::dlvsym(RTLD_DEFAULT, "mlx5dv_get_data_direct_sysfs_path", "MLX5_1.25"));
    ASSERT_NE(get_path, nullptr);
    char path[64];
    EXPECT_EQ(get_path(context.get(), path, sizeof path), ENODEV);
    using Register = ibv_mr* (*)(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int, int);
    const auto reg =
        reinterpret_cast<Register>(::dlvsym(RTLD_DEFAULT, "mlx5dv_reg_dmabuf_mr", "MLX5_1.25"));
    ASSERT_NE(reg, nullptr);
    EXPECT_EQ(reg(pd.get(), 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE, 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(reg(pd.get(), 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE, 0), nullptr);
    EXPECT_EQ(errno, EBADF);
}

TEST_F(Mlx5Functions, MessagesOfThisProfileAreAtMostOneGibibyte) {
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.max_msg_sz, 1U << 30U);
}

} // namespace
