// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include <rdmabuf/transport/detail/queue_pair_table.hpp>

namespace rdmabuf::transport::detail {
namespace {

class QueuePairTables : public ::testing::Test {
  protected:
    /// Returns a reference that stands for a channel. The table uses only its address.
    [[nodiscard]] ChannelState& channel(std::size_t i) {
        return *reinterpret_cast<ChannelState*>(&channels_.at(i % channels_.size()));
    }

    QueuePairTable table_;

  private:
    std::array<std::uint64_t, 64> channels_{};
};

/// Numbers with this distance begin their search at the same entry of a table of up to 4,096
/// entries.
constexpr std::uint32_t colliding = 4096;

TEST_F(QueuePairTables, agree_with_a_map) {
    std::map<std::uint32_t, ChannelState*> model;
    std::mt19937 random(1); // NOLINT(*-msc51-cpp): the same sequence in every run
    for (std::uint32_t step = 0; step < 50000; ++step) {
        // Few numbers, of which many collide.
        const auto number = static_cast<std::uint32_t>(random() % 8 + random() % 64 * colliding);
        const auto known = model.find(number);
        ASSERT_EQ(table_.find(number).channel, known == model.end() ? nullptr : known->second)
            << step;
        if (known != model.end()) {
            table_.remove(number);
            model.erase(known);
        } else if (random() % 4 != 0) {
            table_.add(number, channel(step), 0);
            model.emplace(number, &channel(step));
        }
    }
    for (const auto& [number, expected] : model) {
        ASSERT_EQ(table_.find(number).channel, expected);
    }
}

} // namespace
} // namespace rdmabuf::transport::detail
