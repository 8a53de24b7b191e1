// SPDX-License-Identifier: BSD-3-Clause
// The create flags that reach mlx5dv_create_qp(3): out-of-order placement
// (MLX5DV_QP_CREATE_OOO_DP), and no scatter-to-CQE, which writes small payloads by the CPU.
#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <rdmabuf/region.hpp>

#include "queue_pair_fixture.hpp"

namespace {

constexpr std::uint32_t disable_scatter_to_cqe = 1U << 3U;
constexpr std::uint32_t out_of_order = 1U << 7U;

/// The first members of mlx5dv_qp_init_attr.
struct InitAttr {
    std::uint64_t comp_mask;
    std::uint32_t create_flags;
};
std::vector<std::uint32_t> create_flags;

} // namespace

/// The library finds this function before that of softverbs.
extern "C" __attribute__((visibility("default"))) ibv_qp* mlx5dv_create_qp(
    ibv_context* context, ibv_qp_init_attr_ex* attributes, InitAttr* extra) {
    create_flags.push_back(extra->create_flags);
    static auto* const original =
        reinterpret_cast<decltype(&mlx5dv_create_qp)>(::dlsym(RTLD_NEXT, "mlx5dv_create_qp"));
    return original(context, attributes, extra);
}

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using testing::fails_with;

class OutOfOrderPlacement : public testing::QueuePairTest {
  protected:
    OutOfOrderPlacement() {
        use([] { EXPECT_EQ(softverbs_reset("mlx5", 1), 0); });
        create_flags.clear();
    }
    [[nodiscard]] QueuePairOptions wanted(
        QueuePairType type = QueuePairType::reliable_connected) const {
        QueuePairOptions made = options(type);
        made.out_of_order_placement = true;
        return made;
    }
};

TEST_F(OutOfOrderPlacement, IsRequestedTogetherWithNoScatterToCqe) {
    std::array<std::byte, 16> memory{std::byte{7}};
    const MemoryRegion region(basics_->pd, memory.data(), memory.size());
    const QueuePair qp = testing::connect_to_itself(prepare(wanted()));
    EXPECT_THAT(create_flags, ElementsAre(disable_scatter_to_cqe | out_of_order));
    EXPECT_TRUE(qp.extended());
    ASSERT_TRUE(qp.post_recv(region.sge(8, 8), 1));
    ASSERT_TRUE(qp.post_send(region.sge(0, 8), {.wr_id = 2}));
    for (int i = 0; i < 2; ++i) {
        WorkCompletion completion{};
        ASSERT_EQ(basics_->cq.wait({&completion, 1}, std::chrono::seconds(20)), 1U);
        EXPECT_TRUE(succeeded(completion)) << describe(completion);
    }
    EXPECT_EQ(memory[8], std::byte{7});
}

TEST_F(OutOfOrderPlacement, IsRequestedWithScatterToCqeAndForDatagrams) {
    QueuePairOptions both = wanted();
    both.scatter_to_cqe = true;
    static_cast<void>(prepare(both));
    static_cast<void>(prepare(wanted(QueuePairType::unreliable_datagram)));
    EXPECT_THAT(create_flags, ElementsAre(out_of_order, out_of_order));
}

TEST_F(OutOfOrderPlacement, IsNotRequestedByDefaultAndScatterToCqeIsSwitchedOff) {
    QueuePairOptions plain = options();
    plain.extended = ExtendedInterface::off;
    QueuePairOptions scattered = options();
    scattered.scatter_to_cqe = true;
    static_cast<void>(prepare(options()));
    static_cast<void>(prepare(plain));
    static_cast<void>(prepare(scattered));
    static_cast<void>(prepare(options(QueuePairType::unreliable_datagram)));
    EXPECT_THAT(create_flags, ElementsAre(disable_scatter_to_cqe, disable_scatter_to_cqe));
}

TEST_F(OutOfOrderPlacement, IsRefusedOnDevicesOfOtherDrivers) {
    use([] { EXPECT_EQ(softverbs_reset("default", 1), 0); });
    EXPECT_THAT(refusal(wanted()),
                fails_with("ibv_create_qp", EOPNOTSUPP,
                           "with out-of-order placement, which needs an mlx5 device"));
    EXPECT_TRUE(create_flags.empty());
}

} // namespace
} // namespace rdmabuf
