// SPDX-License-Identifier: BSD-3-Clause
// Channel::send_copy(): short messages from memory that is not registered.
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "features_fixture.hpp"
#include "recorder/verbs_recorder.hpp"

namespace rdmabuf::testing {
namespace {

using transport::max_copied_message;

class SendCopy : public FeaturesTest {
  protected:
    static constexpr Tag tag = 5;

    /// Receives one message at the right end, and compares its bytes.
    void expect_message(std::span<const std::byte> expected, Tag of = tag) {
        Request request;
        ASSERT_EQ(right().irecv(to_->memory(), to_->data(), memory_size, of, request), code(0));
        const Completion completion = complete(right(), request);
        ASSERT_EQ(completion.error, code(0)) << right().reason();
        ASSERT_EQ(completion.bytes, expected.size());
        EXPECT_TRUE(to_->bytes(0, expected.size()) ==
                    std::vector<std::byte>(expected.begin(), expected.end()));
    }
};

TEST_F(SendCopy, sends_bytes_of_any_memory_and_registers_nothing) {
    connect_with_memory();
    settle();
    const std::size_t registrations = record().registrations.size();
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{200}, max_copied_message}) {
        SCOPED_TRACE(length);
        std::vector<std::byte> bytes = pattern(length, 3);
        const std::vector<std::byte> sent = bytes;
        ASSERT_EQ(left().send_copy(bytes, tag), code(0));
        std::ranges::fill(bytes, std::byte{0xff}); // The memory may be reused at once.
        expect_message(sent);
    }
    EXPECT_EQ(record().registrations.size(), registrations);
    EXPECT_EQ(left().in_flight(), 0);
}

TEST_F(SendCopy, fails_with_eagain_while_the_peer_has_no_memory_for_more_messages) {
    options_.unexpected_limit = 4096;
    connect_with_memory();
    const std::vector<std::byte> bytes = pattern(1000, 6);
    std::size_t sent = 0;
    while (!left().send_copy(bytes, tag)) {
        ++sent;
        ASSERT_LT(sent, 100U);
    }
    EXPECT_EQ(sent, 3U); // Each message counts as its length plus 64 bytes.
    EXPECT_EQ(left().send_copy(bytes, tag), code(EAGAIN));
    for (std::size_t i = 0; i < sent; ++i) {
        expect_message(bytes);
    }
    static_cast<void>(progress_until([&] { return !left().send_copy(bytes, tag); }));
    expect_message(bytes);
}

TEST_F(SendCopy, fails_with_emsgsize_for_a_message_that_cannot_be_copied) {
    connect_with_memory();
    EXPECT_EQ(left().send_copy(pattern(max_copied_message + 1), tag), code(EMSGSIZE));
    disconnect_all();
    options_.eager_limit = 100;
    connect_with_memory();
    EXPECT_EQ(left().send_copy(pattern(101), tag), code(EMSGSIZE));
    EXPECT_EQ(left().send_copy(pattern(100), tag), code(0));
    expect_message(pattern(100));
}

} // namespace
} // namespace rdmabuf::testing
