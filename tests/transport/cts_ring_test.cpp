// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>

#include <gtest/gtest.h>

#include <rdmabuf/transport/detail/cts_ring.hpp>
#include <rdmabuf/transport/detail/flow_control.hpp>

namespace rdmabuf::transport::detail {
namespace {

TEST(CtsRings, keep_the_order_of_the_receives_when_entries_are_reused) {
    struct Receive {
        std::uint64_t tag;
        std::uint32_t request;
    };
    CtsRing ring;
    std::deque<Receive> model;
    std::mt19937 random(1); // NOLINT(*-msc51-cpp): the same sequence in every run
    for (std::uint32_t step = 0; step < 20000; ++step) {
        const std::uint64_t tag = random() % 4;
        if (random() % 2 == 0 && !ring.full()) {
            CtsRing::Entry& entry = ring.push_back();
            entry.tag = tag;
            entry.request = step;
            model.push_back({tag, step});
            continue;
        }
        const auto expected = std::find_if(
            model.begin(), model.end(), [&](const Receive& receive) { return receive.tag == tag; });
        CtsRing::Entry* const found = ring.find(tag);
        ASSERT_EQ(found != nullptr, expected != model.end());
        if (found != nullptr) {
            ASSERT_EQ(found->request, expected->request);
            ASSERT_EQ(ring.find_request(expected->request), found);
            ring.remove(found);
            ASSERT_EQ(ring.find_request(expected->request), nullptr);
            model.erase(expected);
        }
        ASSERT_EQ(ring.empty(), model.empty());
        ASSERT_EQ(ring.full(), model.size() == CtsRing::capacity);
    }
}

TEST(TagsOfSentMessages, pair_each_message_with_one_advertisement) {
    SentTags tags;
    tags.add(0, 5, false);
    tags.add(1, 6, false);
    tags.add(2, 5, false);
    EXPECT_TRUE(tags.pair(0, 3, 5));
    EXPECT_TRUE(tags.pair(0, 3, 5));
    EXPECT_FALSE(tags.pair(0, 3, 5));
    EXPECT_TRUE(tags.pair(0, 3, 6));
    EXPECT_FALSE(tags.pair(0, 3, 7));
    tags.add(3, 8, false);
    tags.add(4, 9, true);
    EXPECT_FALSE(tags.pair(4, 5, 8)) << "the peer had received it before";
    EXPECT_FALSE(tags.pair(5, 5, 8)) << "the peer had received it before";
    EXPECT_FALSE(tags.pair(3, 5, 9)) << "it has used an advertisement";
    EXPECT_TRUE(tags.pair(3, 5, 8));
}

TEST(TagsOfSentMessages, cover_a_full_window_and_wrap_around) {
    SentTags tags;
    const std::uint32_t first = 0U - MessageWindow::size / 2;
    for (std::uint32_t i = 0; i < MessageWindow::size; ++i) {
        tags.add(first + i, i, false);
    }
    for (std::uint32_t i = 0; i < MessageWindow::size; ++i) {
        ASSERT_TRUE(tags.pair(first, first + MessageWindow::size, i)) << i;
        ASSERT_FALSE(tags.pair(first, first + MessageWindow::size, i)) << i;
    }
    tags.add(first + MessageWindow::size, 3, false);
    EXPECT_TRUE(tags.pair(first + 1, first + 1 + MessageWindow::size, 3));
}

} // namespace
} // namespace rdmabuf::transport::detail
