// SPDX-License-Identifier: BSD-3-Clause
// Transfers are striped over devices in proportion to the speed of their ports.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "features_fixture.hpp"
#include "recorder/verbs_recorder.hpp"

namespace rdmabuf::testing {
namespace {

/// ibv_port_attr::active_width and active_speed of a port.
struct Rate {
    std::uint8_t width;
    std::uint8_t speed;
};
constexpr Rate of_25_gbit{1, 32};
constexpr Rate of_50_gbit{16, 32};
constexpr Rate of_100_gbit{2, 32};
constexpr Rate of_400_gbit{2, 128};

struct Devices {
    const char* name;
    std::vector<Rate> rates;
    /// The percentage of a transfer that each device transfers.
    std::vector<std::size_t> percentages;
};
void PrintTo(const Devices& devices, // NOLINT(readability-identifier-naming)
             std::ostream* out) {
    *out << devices.name;
}

class Striping : public FeaturesTest, public ::testing::WithParamInterface<Devices> {
  protected:
    static constexpr std::size_t length = 1'000'000;

    void SetUp() override {
        const auto& rates = GetParam().rates;
        use_devices(rates.size());
        for (unsigned device = 0; device < rates.size(); ++device) {
            ibv_port_attr port = roce_port();
            port.active_width = rates[device].width;
            port.active_speed = rates[device].speed;
            set_port(port, 1, device);
        }
        options_.min_fragment = 4096;
        connect_with_memory();
        forget_calls();
    }
    /// Expects that the posted work requests of one opcode transfer the percentages of @p memory,
    /// the first device the first part, and so on.
    static void expect_shares(ibv_wr_opcode opcode, const TestMemory& memory) {
        struct Share {
            std::uint64_t begin;
            std::size_t length;
        };
        std::vector<Share> shares;
        for (const Send& send : record().sends) {
            if (send.request.opcode == opcode) {
                ASSERT_EQ(send.entries.size(), 1U);
                shares.push_back({send.request.wr.rdma.remote_addr -
                                      reinterpret_cast<std::uintptr_t>(memory.data()),
                                  send.entries[0].length});
            }
        }
        std::ranges::sort(shares, {}, &Share::begin);
        const auto& percentages = GetParam().percentages;
        ASSERT_EQ(shares.size(), percentages.size());
        std::size_t begin = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            EXPECT_EQ(shares[i].begin, begin);
            // The parts are aligned.
            const std::size_t expected = percentages[i] * length / 100;
            EXPECT_NEAR(static_cast<double>(shares[i].length), static_cast<double>(expected), 8192);
            begin += shares[i].length;
        }
        EXPECT_EQ(begin, length);
        forget_calls();
    }
};

INSTANTIATE_TEST_SUITE_P(
    over, Striping,
    ::testing::Values(
        Devices{"equal_ports", {of_100_gbit, of_100_gbit}, {50, 50}},
        Devices{"a_slow_and_a_fast_port", {of_25_gbit, of_100_gbit}, {20, 80}},
        Devices{"a_fast_and_a_slow_port", {of_400_gbit, of_100_gbit}, {80, 20}},
        Devices{"four_ports", {of_50_gbit, of_25_gbit, of_100_gbit, of_25_gbit}, {25, 12, 50, 12}},
        Devices{
            "eight_ports", std::vector<Rate>(8, of_100_gbit), {12, 12, 12, 12, 12, 12, 12, 12}}),
    [](const auto& value) { return std::string(value.param.name); });

TEST_P(Striping, follows_the_speed_of_the_ports) {
    for (const bool is_advertised : {true, false}) {
        SCOPED_TRACE(is_advertised ? "the sender writes" : "the receiver reads");
        clear_received();
        Request received = is_advertised ? receive(length) : Request();
        settle();
        Request sent = send(length);
        settle();
        if (!is_advertised) {
            received = receive(length);
        }
        EXPECT_EQ(complete(right(), received).bytes, length);
        EXPECT_EQ(complete(left(), sent).error, code(0));
        EXPECT_TRUE(this->received(0, 0, length));
        is_advertised ? expect_shares(IBV_WR_RDMA_WRITE_WITH_IMM, *to_)
                      : expect_shares(IBV_WR_RDMA_READ, *from_);
    }
    SCOPED_TRACE("a put");
    Request put;
    ASSERT_EQ(left().iput(from_->memory(), from_->data(), length, remote(), 0, put), code(0));
    EXPECT_EQ(complete(left(), put).error, code(0));
    expect_shares(IBV_WR_RDMA_WRITE, *to_);
}

} // namespace
} // namespace rdmabuf::testing
