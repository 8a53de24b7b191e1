// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/transport/detail/cts_ring.hpp>
#include <rdmabuf/transport/detail/flow_control.hpp>

namespace rdmabuf::transport::detail {
namespace {

void add(CtsRing& ring, std::uint64_t tag, std::uint32_t request) {
    CtsRing::Entry& entry = ring.push_back();
    entry.tag = tag;
    entry.request = request;
}

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
            add(ring, tag, step);
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
}

TEST(TagsOfSentMessages, do_not_pair_messages_that_have_used_an_advertisement) {
    SentTags tags;
    tags.add(0, 5, true);
    EXPECT_FALSE(tags.pair(0, 1, 5));
}

TEST(TagsOfSentMessages, do_not_pair_messages_that_the_peer_had_received_before) {
    SentTags tags;
    tags.add(0, 5, false);
    tags.add(1, 6, false);
    EXPECT_FALSE(tags.pair(1, 2, 5));
    EXPECT_FALSE(tags.pair(2, 2, 6));
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

/// The sender and the receiver of one channel. Messages and advertisements cross each other on two
/// links. Both ends follow the pairing rules of RendezvousSender and RendezvousReceiver.
class Crossing {
  public:
    explicit Crossing(std::uint32_t seed) : random_(seed) {}

    void post_receive() {
        const std::uint64_t tag = random_() % 3;
        for (std::size_t i = 0; i < unexpected_.size(); ++i) {
            if (unexpected_[i] == tag) {
                unexpected_.erase(unexpected_.begin() + static_cast<std::ptrdiff_t>(i));
                return;
            }
        }
        // A long receive is advertised, unless an earlier receive takes the message.
        const bool advertise =
            random_() % 4 != 0 && advertised_ < CtsRing::capacity &&
            std::none_of(posted_.begin(), posted_.end(), [&](const Receive& receive) {
                return receive.tag == tag && !receive.advertised;
            });
        posted_.push_back({.tag = tag, .number = ++number_, .advertised = advertise});
        if (advertise) {
            ++advertised_;
            advertisements_.push_back(
                {.tag = tag, .number = number_, .received = receiver_.received()});
        }
    }
    void send() {
        const std::uint64_t tag = random_() % 3;
        CtsRing::Entry* const entry = ring_.find(tag);
        if (entry != nullptr && random_() % 2 == 0) {
            messages_.push_back({.tag = tag, .written_to = entry->request});
            ring_.remove(entry);
            ++written;
            return;
        }
        if (!sender_.available()) {
            return;
        }
        tags_.add(sender_.sent(), tag, entry != nullptr);
        sender_.count_sent();
        if (entry != nullptr) {
            ring_.remove(entry);
        }
        messages_.push_back({.tag = tag, .written_to = 0});
    }
    void deliver_message() {
        if (messages_.empty()) {
            return;
        }
        const Message message = messages_.front();
        messages_.pop_front();
        const auto receive =
            std::find_if(posted_.begin(), posted_.end(),
                         [&](const Receive& posted) { return posted.tag == message.tag; });
        if (message.written_to != 0) {
            // The data is in the memory of this receive, so the message must match it.
            ASSERT_NE(receive, posted_.end());
            ASSERT_EQ(receive->number, message.written_to);
        } else {
            receiver_.count_received();
        }
        if (receive == posted_.end()) {
            unexpected_.push_back(message.tag);
            return;
        }
        advertised_ -= receive->advertised ? 1U : 0U;
        posted_.erase(receive);
    }
    void deliver_advertisement() {
        if (advertisements_.empty()) {
            return;
        }
        const Advertisement advertisement = advertisements_.front();
        advertisements_.pop_front();
        ASSERT_TRUE(sender_.peer_received(advertisement.received));
        const std::uint32_t sent = sender_.sent();
        if (tags_.pair(sent - sender_.unreceived(), sent, advertisement.tag)) {
            ++paired;
            return;
        }
        ASSERT_FALSE(ring_.full());
        add(ring_, advertisement.tag, advertisement.number);
    }

    /// The number of messages that were written to an advertised receive.
    std::size_t written = 0;
    /// The number of advertisements that crossed their message.
    std::size_t paired = 0;

  private:
    struct Receive {
        std::uint64_t tag;
        std::uint32_t number;
        bool advertised;
    };
    struct Message {
        std::uint64_t tag;
        /// The receive to which the message was written; 0 for an eager message.
        std::uint32_t written_to;
    };
    struct Advertisement {
        std::uint64_t tag;
        std::uint32_t number;
        std::uint16_t received;
    };

    std::mt19937 random_;
    // The sender.
    MessageWindow sender_;
    SentTags tags_;
    CtsRing ring_;
    // The receiver.
    MessageWindow receiver_;
    std::deque<Receive> posted_;
    std::deque<std::uint64_t> unexpected_;
    std::uint32_t number_ = 0;
    std::uint32_t advertised_ = 0;
    // The links.
    std::deque<Message> messages_;
    std::deque<Advertisement> advertisements_;
};

TEST(TagsOfSentMessages, and_the_ring_agree_with_the_receiver_when_messages_cross_advertisements) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(seed);
        Crossing crossing(seed);
        std::mt19937 random(seed);
        for (int step = 0; step < 5000; ++step) {
            switch (random() % 4) {
                case 0:
                    crossing.post_receive();
                    break;
                case 1:
                    crossing.send();
                    break;
                case 2:
                    ASSERT_NO_FATAL_FAILURE(crossing.deliver_message());
                    break;
                default:
                    ASSERT_NO_FATAL_FAILURE(crossing.deliver_advertisement());
                    break;
            }
        }
        EXPECT_GT(crossing.written, 0);
        EXPECT_GT(crossing.paired, 0);
    }
}

} // namespace
} // namespace rdmabuf::transport::detail
