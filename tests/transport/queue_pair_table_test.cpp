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

TEST_F(QueuePairTables, find_the_channel_of_a_queue_pair) {
    EXPECT_EQ(table_.find(17).channel, nullptr);
    table_.add(17, channel(1), 3);
    table_.add(0, channel(2), 0);
    table_.add(0xffffff, channel(1), 15);
    EXPECT_EQ(table_.find(17).channel, &channel(1));
    EXPECT_EQ(table_.find(0).channel, &channel(2));
    EXPECT_EQ(table_.find(0xffffff).channel, &channel(1));
    EXPECT_EQ(table_.find(18).channel, nullptr);
    EXPECT_EQ(table_.find(17).rail, 3);
    EXPECT_EQ(table_.find(0).rail, 0);
    EXPECT_EQ(table_.find(0xffffff).rail, 15);
    table_.remove(17);
    EXPECT_EQ(table_.find(17).channel, nullptr);
    EXPECT_EQ(table_.find(0).channel, &channel(2));
}

TEST_F(QueuePairTables, ignore_the_removal_of_an_unknown_queue_pair) {
    table_.add(1, channel(1), 0);
    table_.remove(2);
    table_.remove(1 + colliding);
    EXPECT_EQ(table_.find(1).channel, &channel(1));
}

TEST_F(QueuePairTables, keep_colliding_numbers_reachable_when_one_of_them_is_removed) {
    constexpr std::uint32_t count = 10;
    for (std::uint32_t removed = 0; removed < count; ++removed) {
        QueuePairTable table;
        for (std::uint32_t i = 0; i < count; ++i) {
            table.add(5 + i * colliding, channel(i), 0);
        }
        table.remove(5 + removed * colliding);
        for (std::uint32_t i = 0; i < count; ++i) {
            ASSERT_EQ(table.find(5 + i * colliding).channel, i == removed ? nullptr : &channel(i))
                << i << " after the removal of " << removed;
        }
    }
}

TEST_F(QueuePairTables, grow) {
    constexpr std::uint32_t count = 20000;
    for (std::uint32_t i = 0; i < count; ++i) {
        table_.add(i * 7, channel(i), i);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        ASSERT_EQ(table_.find(i * 7).channel, &channel(i)) << i;
        ASSERT_EQ(table_.find(i * 7).rail, i);
        ASSERT_EQ(table_.find(i * 7 + 1).channel, nullptr) << i;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        table_.remove(i * 7);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        ASSERT_EQ(table_.find(i * 7).channel, nullptr) << i;
    }
}

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
