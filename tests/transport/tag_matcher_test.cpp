// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/transport/detail/tag_matcher.hpp>

namespace rdmabuf::transport::detail {
namespace {

class TagMatching : public ::testing::Test {
  protected:
    /// Returns a pointer that stands for a channel. The matcher compares such pointers only.
    [[nodiscard]] ChannelState* channel(std::size_t i) {
        return reinterpret_cast<ChannelState*>(&channels_.at(i));
    }
    /// Posts a receive. @param from  nullptr for a receive from any channel
    ReceiveRequest& post(ChannelState* from, Tag tag, Tag mask = full_mask) {
        ReceiveRequest& receive = receives_.emplace_back();
        receive.channel = from;
        receive.tag = tag;
        receive.mask = mask;
        matcher_.post(receive);
        return receive;
    }
    UnexpectedMessage& arrive(ChannelState* from, Tag tag) {
        UnexpectedMessage* const message = UnexpectedMessage::make(blocks_, 0);
        message->channel = from;
        message->kind = Kind::eager;
        message->tag = tag;
        matcher_.add(*message);
        return *message;
    }
    void destroy(UnexpectedMessage& message) {
        matcher_.remove(message);
        UnexpectedMessage::destroy(&message);
    }

  private:
    BlockPool blocks_{65536};

  protected:
    TagMatcher matcher_;

  private:
    std::array<std::uint64_t, 8> channels_{};
    std::deque<ReceiveRequest> receives_;
};

TEST_F(TagMatching, reports_earlier_receives_that_were_not_advertised) {
    EXPECT_FALSE(matcher_.has_unadvertised(channel(0), 5));
    ReceiveRequest& exact = post(channel(0), 5);
    EXPECT_TRUE(matcher_.has_unadvertised(channel(0), 5));
    EXPECT_FALSE(matcher_.has_unadvertised(channel(0), 6));
    EXPECT_FALSE(matcher_.has_unadvertised(channel(1), 5));
    exact.advertised = true;
    EXPECT_FALSE(matcher_.has_unadvertised(channel(0), 5));
    ReceiveRequest& any = post(nullptr, 4, 0xfffe);
    EXPECT_TRUE(matcher_.has_unadvertised(channel(0), 5));
    EXPECT_TRUE(matcher_.has_unadvertised(channel(1), 4));
    EXPECT_FALSE(matcher_.has_unadvertised(channel(0), 6));
    matcher_.remove(any);
    EXPECT_FALSE(matcher_.has_unadvertised(channel(0), 5));
}

TEST_F(TagMatching, keeps_messages_and_receives_with_the_same_hash_value_apart) {
    // The tags share 256 lists, so that most lists have several receives and messages.
    constexpr Tag tags = 4096;
    std::vector<UnexpectedMessage*> messages;
    std::vector<ReceiveRequest*> receives;
    for (Tag tag = 0; tag < tags; ++tag) {
        messages.push_back(&arrive(channel(0), tag));
        receives.push_back(&post(channel(1), tag));
    }
    for (Tag tag = tags; tag-- > 0;) {
        ASSERT_EQ(matcher_.find_message(channel(0), tag, full_mask), messages[tag]);
        ASSERT_EQ(matcher_.find_message(channel(1), tag, full_mask), nullptr);
        ASSERT_EQ(matcher_.find_receive(channel(1), tag), receives[tag]);
        ASSERT_EQ(matcher_.find_receive(channel(0), tag), nullptr);
    }
    for (Tag i = 0; i < tags; ++i) {
        const Tag tag = i * 7 % tags;
        ASSERT_EQ(matcher_.take_receive(channel(1), tag), receives[tag]);
        ASSERT_EQ(matcher_.take_receive(channel(1), tag), nullptr);
    }
    // The lists are empty, and can be used again.
    for (Tag tag = 0; tag < tags; ++tag) {
        ReceiveRequest& receive = post(channel(1), tag);
        ASSERT_EQ(matcher_.take_receive(channel(1), tag), &receive);
    }
}

/// The same rules, by a linear search over all receives and messages.
struct Model {
    struct Receive {
        ReceiveRequest* receive;
        ChannelState* channel;
        Tag tag;
        Tag mask;
    };
    struct Message {
        UnexpectedMessage* message;
        ChannelState* channel;
        Tag tag;
    };
    [[nodiscard]] static bool match(const Receive& receive, const ChannelState* channel, Tag tag) {
        return (receive.channel == nullptr || receive.channel == channel) &&
               (receive.tag & receive.mask) == (tag & receive.mask);
    }
    std::vector<Receive> receives;
    std::vector<Message> messages;
};

TEST_F(TagMatching, agrees_with_a_linear_search) {
    Model model;
    std::mt19937 random(1); // NOLINT(*-msc51-cpp): the same sequence in every run
    const auto below = [&](std::uint32_t end) {
        return static_cast<std::uint32_t>(random() % end);
    };
    for (int step = 0; step < 20000; ++step) {
        ChannelState* const from = channel(below(3));
        const Tag tag = below(8);
        if (below(2) == 0) {
            // A message arrives.
            std::size_t expected = 0;
            while (expected < model.receives.size() &&
                   !Model::match(model.receives[expected], from, tag)) {
                ++expected;
            }
            ReceiveRequest* const found = matcher_.find_receive(from, tag);
            if (expected == model.receives.size()) {
                ASSERT_EQ(found, nullptr) << "step " << step;
                model.messages.push_back({&arrive(from, tag), from, tag});
            } else {
                ASSERT_EQ(found, model.receives[expected].receive) << "step " << step;
                ASSERT_EQ(matcher_.take_receive(from, tag), found) << "step " << step;
                model.receives.erase(model.receives.begin() +
                                     static_cast<std::ptrdiff_t>(expected));
            }
            continue;
        }
        // A receive is posted.
        const bool any = below(4) == 0;
        const Tag mask = below(3) == 0 ? Tag{below(8)} : full_mask;
        Model::Receive receive = {nullptr, any ? nullptr : from, tag, mask};
        std::size_t expected = 0;
        while (expected < model.messages.size() &&
               !Model::match(receive, model.messages[expected].channel,
                             model.messages[expected].tag)) {
            ++expected;
        }
        UnexpectedMessage* const found = matcher_.find_message(receive.channel, tag, mask);
        if (expected == model.messages.size()) {
            ASSERT_EQ(found, nullptr) << "step " << step;
            receive.receive = &post(receive.channel, tag, mask);
            model.receives.push_back(receive);
        } else {
            ASSERT_EQ(found, model.messages[expected].message) << "step " << step;
            destroy(*found);
            model.messages.erase(model.messages.begin() + static_cast<std::ptrdiff_t>(expected));
        }
    }
}

} // namespace
} // namespace rdmabuf::transport::detail
