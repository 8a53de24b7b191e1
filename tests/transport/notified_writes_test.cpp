// SPDX-License-Identifier: BSD-3-Clause
// The work requests of iput_notify(): which of them one call of ibv_post_send(3) posts, and what
// happens if it posts only some of them.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "features_fixture.hpp"
#include "post_filter.hpp"
#include "recorder/verbs_recorder.hpp"

namespace rdmabuf::testing {
namespace {

using transport::max_notification;
using transport::detail::Header;
using transport::detail::Immediate;

class NotifiedWrites : public FeaturesTest {
  protected:
    /// Connects two endpoints, and ends the work requests of the set-up.
    void connect_ends() {
        connect_with_memory();
        settle();
        forget_calls();
    }
    /// Writes @p length bytes to the same offset of the memory of the right end.
    Request put(std::size_t offset, std::size_t length) {
        Request request;
        EXPECT_EQ(
            left().iput(from_->memory(), from_->data(offset), length, remote(), offset, request),
            code(0));
        return request;
    }
    Request put_notify(std::size_t offset, std::size_t length,
                       std::span<const std::byte> notification) {
        Request request;
        EXPECT_EQ(left().iput_notify(from_->memory(), from_->data(offset), length, remote(), offset,
                                     notification, request),
                  code(0));
        return request;
    }
    [[nodiscard]] bool has_notification() {
        std::array<std::byte, max_notification> bytes{};
        return right().notification(bytes).ok();
    }
    void expect_complete(Request& request, std::size_t length) {
        const Completion completion = complete(left(), request);
        EXPECT_EQ(completion.error, code(0)) << left().reason();
        EXPECT_EQ(completion.bytes, length);
    }
    /// Returns the number of posted work requests of a kind.
    /// @param bytes  their length; std::nullopt for any length
    static std::ptrdiff_t posted(ibv_wr_opcode opcode,
                                 std::optional<std::size_t> bytes = std::nullopt) {
        return std::ranges::count_if(record().sends, [&](const Send& send) {
            return send.request.opcode == opcode &&
                   (!bytes || (send.entries.size() == 1 && send.entries[0].length == *bytes));
        });
    }
    /// Returns the work requests in the order in which they were posted, as one letter each: a
    /// write (w), a fence (f), or a message (m); a space separates the calls of ibv_post_send(3).
    static std::string posted_calls() {
        std::string calls;
        unsigned call = 0;
        for (const Send& send : record().sends) {
            if (!calls.empty() && send.call != call) {
                calls += ' ';
            }
            call = send.call;
            switch (send.request.opcode) {
                case IBV_WR_RDMA_WRITE:
                    calls += 'w';
                    break;
                case IBV_WR_RDMA_WRITE_WITH_IMM:
                    calls += 'f';
                    break;
                case IBV_WR_SEND:
                    calls += 'm';
                    break;
                default:
                    calls += '?';
                    break;
            }
        }
        return calls;
    }
    /// While the result exists, work requests of a kind that the left end posts on its first device
    /// fail.
    [[nodiscard]] PostFilter fail_each(ibv_wr_opcode opcode, int error) {
        return {left_end().protection_domain().context().native(),
                [opcode, error](const ibv_qp&, const ibv_send_wr& work) {
                    return work.opcode == opcode ? error : 0;
                }};
    }
};

struct Form {
    const char* name;
    std::size_t length;
    std::size_t notification;
    TestMemory::Kind memory = TestMemory::Kind::host;
    std::uint32_t inline_data = 128;
    bool write_is_inline = false;
    bool message_is_inline = false;
};
void PrintTo(const Form& form, std::ostream* out) { // NOLINT(readability-identifier-naming)
    *out << form.name;
}

constexpr auto forms = std::to_array<Form>({
    {.name = "inline_without_bytes",
     .length = 1,
     .notification = 0,
     .write_is_inline = true,
     .message_is_inline = true},
    {.name = "longest_inline",
     .length = 128,
     .notification = 128 - sizeof(Header),
     .write_is_inline = true,
     .message_is_inline = true},
    {.name = "inline_with_buffered_notification",
     .length = 8,
     .notification = 129 - sizeof(Header),
     .write_is_inline = true},
    {.name = "short_with_inline_notification",
     .length = 129,
     .notification = 8,
     .message_is_inline = true},
    {.name = "long_with_longest_notification", .length = 300000, .notification = max_notification},
    {.name = "no_inline_data", .length = 8, .notification = 8, .inline_data = 0},
    {.name = "device_memory",
     .length = 8,
     .notification = 8,
     .memory = TestMemory::Kind::dmabuf,
     .message_is_inline = true},
});

class NotifiedWrite : public NotifiedWrites, public ::testing::WithParamInterface<Form> {};
INSTANTIATE_TEST_SUITE_P(of, NotifiedWrite, ::testing::ValuesIn(forms),
                         [](const auto& value) { return std::string(value.param.name); });

TEST_P(NotifiedWrite, and_its_notification_are_posted_by_one_call) {
    const Form& form = GetParam();
    options_.inline_data = form.inline_data;
    connect_with_memory();
    const TestMemory mine = left_memory(memory_size, form.memory);
    const TestMemory theirs = right_memory(memory_size, form.memory);
    const std::vector<std::byte> bytes = pattern(form.length, 2);
    std::ranges::copy(bytes, mine.data(3));
    const RemoteMemory target = theirs.memory().remote().value();
    const std::vector<std::byte> notification = pattern(form.notification, 3);
    settle();
    for (int round = 0; round < 3; ++round) {
        SCOPED_TRACE(round);
        std::ranges::fill(std::span(theirs.data(), memory_size), std::byte{});
        forget_calls();
        Request request;
        ASSERT_EQ(left().iput_notify(mine.memory(), mine.data(3), form.length, target, 77,
                                     notification, request),
                  code(0));
        ASSERT_EQ(posted_calls(), "wm");
        const Send& write = record().sends[0];
        const Send& message = record().sends[1];
        const auto has = [](const Send& send, ibv_send_flags flag) {
            return (send.request.send_flags & flag) != 0;
        };
        EXPECT_EQ(has(write, IBV_SEND_INLINE), form.write_is_inline);
        EXPECT_EQ(has(message, IBV_SEND_INLINE), form.message_is_inline);
        // One completion for both.
        EXPECT_FALSE(has(write, IBV_SEND_SIGNALED));
        EXPECT_TRUE(has(message, IBV_SEND_SIGNALED));
        EXPECT_EQ(write.entries.at(0).length, form.length);
        EXPECT_EQ(message.entries.at(0).length, sizeof(Header) + form.notification);

        EXPECT_TRUE(next() == notification);
        EXPECT_TRUE(theirs.bytes(77, form.length) == bytes);
        expect_complete(request, form.length);
        EXPECT_FALSE(has_notification());
        EXPECT_EQ(posted(IBV_WR_RDMA_WRITE), 1);
    }
}

TEST_F(NotifiedWrites, of_no_data_are_only_a_message) {
    connect_ends();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{8},
                                   std::size_t{129} - sizeof(Header), max_notification}) {
        SCOPED_TRACE(size);
        forget_calls();
        Request request = put_notify(0, 0, pattern(size));
        EXPECT_EQ(posted_calls(), "m");
        EXPECT_TRUE(next() == pattern(size));
        expect_complete(request, 0);
    }
}

// The peer's program does not call notification(), so that later notifications have no credits.
TEST_F(NotifiedWrites, end_without_their_notification_if_they_are_cancelled) {
    options_.notification_limit = 4096;
    connect_ends();
    constexpr std::array<std::byte, max_notification> notification{std::byte{1}};
    const transport::RemoteMemory target = remote();
    const std::array entries{transport::TransferEntry{.memory = &from_->memory(),
                                                      .address = from_->data(),
                                                      .length = 8,
                                                      .remote = &target,
                                                      .offset = 0}};
    std::vector<Request> requests(16);
    for (Request& request : requests) {
        request = put_notify(0, 8, notification);
    }
    Request list;
    ASSERT_EQ(left().iput_list(entries, list, std::span(notification)), code(0));
    settle();
    ASSERT_EQ(left().cancel(list), code(0));
    EXPECT_EQ(complete(left(), list).error, code(ECANCELED));
    ASSERT_EQ(left().cancel(requests.back()), code(0));
    EXPECT_EQ(complete(left(), requests.back()).error, code(ECANCELED));
    requests.pop_back();
    EXPECT_EQ(left().cancel(requests.front()), code(EALREADY)) << "its notification was sent";
    for (Request& request : requests) {
        EXPECT_EQ(next().size(), notification.size());
        expect_complete(request, 8);
    }
    settle();
    EXPECT_FALSE(has_notification());
}

// The device accepts the write, and has no room for the notification. More often than this end has
// send buffers.
TEST_F(NotifiedWrites, are_not_repeated_if_only_their_notification_was_not_posted) {
    options_.send_buffers = 4;
    connect_ends();
    for (const std::size_t size : {std::size_t{8}, std::size_t{300}}) {
        const std::vector<std::byte> bytes = pattern(size, 5);
        const std::vector<std::byte> other = pattern(size, 6);
        for (int round = 0; round < 10; ++round) {
            SCOPED_TRACE(std::to_string(size) + ", round " + std::to_string(round));
            clear_received();
            settle();
            forget_calls();
            Request first;
            Request second;
            {
                const PostFilter filter = fail_each(IBV_WR_SEND, ENOMEM);
                first = put_notify(0, 100, bytes);
                EXPECT_EQ(posted_calls(), "w");
                second = put_notify(100, 5000, other);
                progress_all();
                EXPECT_EQ(posted_calls(), "w w");
                EXPECT_FALSE(left().test(first).done);
                EXPECT_FALSE(left().test(second).done);
            }
            EXPECT_TRUE(next() == bytes);
            EXPECT_TRUE(received(0, 0, 100));
            EXPECT_TRUE(next() == other);
            EXPECT_TRUE(received(100, 100, 5000));
            expect_complete(first, 100);
            expect_complete(second, 5000);
            EXPECT_FALSE(has_notification());
            EXPECT_EQ(posted(IBV_WR_RDMA_WRITE), 2);
            EXPECT_EQ(posted(IBV_WR_SEND, sizeof(Header) + size), 2);
        }
    }
}

// No other request wakes the channel.
TEST_F(NotifiedWrites, send_a_notification_that_was_not_posted_without_another_request) {
    connect_ends();
    for (const bool is_cancelled : {false, true}) {
        SCOPED_TRACE(is_cancelled);
        clear_received();
        forget_calls();
        Request request;
        {
            const PostFilter filter = fail_each(IBV_WR_SEND, ENOMEM);
            request = put_notify(0, 100, pattern(8));
            EXPECT_EQ(posted_calls(), "w");
            if (is_cancelled) {
                EXPECT_EQ(left().cancel(request), code(EALREADY)) << "the device reads the memory";
                EXPECT_FALSE(left().test(request).done);
            }
        }
        EXPECT_TRUE(next() == pattern(8));
        EXPECT_TRUE(received(0, 0, 100));
        expect_complete(request, 100);
        EXPECT_EQ(posted_calls(), "w m");
        settle();
    }
}

TEST_F(NotifiedWrites, are_posted_later_if_nothing_was_posted) {
    connect_ends();
    Request request;
    {
        const PostFilter filter = fail_each(IBV_WR_RDMA_WRITE, ENOMEM);
        request = put_notify(0, 100, pattern(8));
        progress_all();
        EXPECT_EQ(posted_calls(), "");
    }
    EXPECT_TRUE(next() == pattern(8));
    EXPECT_TRUE(received(0, 0, 100));
    expect_complete(request, 100);
    EXPECT_EQ(posted(IBV_WR_RDMA_WRITE), 1);
    EXPECT_EQ(posted(IBV_WR_SEND, sizeof(Header) + 8), 1);
}

TEST_F(NotifiedWrites, end_with_their_channel_if_a_work_request_is_invalid) {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_SEND}) {
        SCOPED_TRACE(opcode);
        disconnect_all();
        connect_ends();
        Request request;
        {
            const PostFilter filter = fail_each(opcode, EINVAL);
            request = put_notify(0, 100, pattern(8));
        }
        EXPECT_EQ(complete(left(), request).error, code(EINVAL));
        EXPECT_EQ(left().state(), code(EIO));
        EXPECT_EQ(left().in_flight(), 0);
        EXPECT_EQ(posted(IBV_WR_RDMA_WRITE), opcode == IBV_WR_SEND ? 1 : 0);
    }
}

class FencesOfNotifications : public NotifiedWrites {
  protected:
    void connect_devices(std::size_t devices, std::uint32_t max_message = 1U << 30U) {
        use_devices(devices);
        for (unsigned device = 0; device < devices; ++device) {
            ibv_port_attr port = roce_port();
            port.max_msg_sz = max_message;
            set_port(port, 1, device);
        }
        connect_ends();
    }
    /// @param written  the number of bytes that the right end must then have
    void notified(Request& request, std::size_t length, std::size_t written) {
        EXPECT_TRUE(next() == pattern(8));
        EXPECT_TRUE(received(0, 0, written));
        expect_complete(request, length);
        settle();
        clear_received();
        forget_calls();
    }
};

TEST_F(FencesOfNotifications, are_not_posted_if_the_first_queue_pair_writes_all_data) {
    for (const std::size_t devices : {1U, 2U}) {
        SCOPED_TRACE(devices);
        disconnect_all();
        connect_devices(devices, 16384);
        Request request = put_notify(0, 16384, pattern(8));
        EXPECT_EQ(posted_calls(), "wm");
        notified(request, 16384, 16384);
        // These writes consist of several work requests.
        request = put_notify(0, 16385, pattern(8));
        EXPECT_EQ(posted_calls(), "w w m");
        notified(request, 16385, 16385);
        request = put_notify(0, 40000, pattern(8));
        EXPECT_EQ(posted_calls(), "w w w m");
        notified(request, 40000, 40000);
    }
}

TEST_F(FencesOfNotifications, are_posted_once_after_a_striped_write) {
    connect_devices(2);
    Request striped = put(0, 200000);
    EXPECT_EQ(posted_calls(), "w w");
    expect_complete(striped, 200000);
    forget_calls();
    Request request = put_notify(0, 100, pattern(8));
    EXPECT_EQ(posted_calls(), "w f m");
    notified(request, 100, 200000);
    request = put_notify(0, 100, pattern(8));
    EXPECT_EQ(posted_calls(), "wm");
    notified(request, 100, 100);
    request = put_notify(0, 200000, pattern(8));
    EXPECT_EQ(posted_calls(), "w w f m");
    notified(request, 200000, 200000);
}

TEST_F(FencesOfNotifications, are_posted_only_on_queue_pairs_that_have_written) {
    connect_devices(4);
    Request request = put_notify(0, 100000, pattern(8)); // More than min_fragment, less than twice.
    EXPECT_EQ(posted_calls(), "w w f m");
    notified(request, 100000, 100000);
    request = put_notify(0, memory_size, pattern(8));
    EXPECT_EQ(posted_calls(), "w w w w f f f m");
    notified(request, memory_size, memory_size);
    // A read needs no fence.
    Request read;
    ASSERT_EQ(left().iget(from_->memory(), from_->data(), memory_size, remote(), 0, read), code(0));
    expect_complete(read, memory_size);
    forget_calls();
    request = put_notify(0, 100, pattern(8));
    EXPECT_EQ(posted_calls(), "wm");
    notified(request, 100, 100);
}

TEST_F(FencesOfNotifications, are_posted_again_after_a_cancelled_notification) {
    constexpr std::size_t length = 200000;
    connect_devices(2);
    Request cancelled;
    {
        const PostFilter filter = fail_each(IBV_WR_SEND, ENOMEM);
        cancelled = put_notify(0, length, pattern(8));
        EXPECT_EQ(posted_calls(), "w w f");
        ASSERT_EQ(left().cancel(cancelled), code(0));
        EXPECT_EQ(complete(left(), cancelled).error, code(ECANCELED));
    }
    clear_received();
    forget_calls();
    Request request = put_notify(0, length, pattern(8));
    EXPECT_EQ(posted_calls(), "w w f m");
    notified(request, length, length);
    EXPECT_FALSE(has_notification());
}

// The fence for a notification is posted, but the notification must wait. Meanwhile, the queue pair
// writes the data of another request.
TEST_F(FencesOfNotifications, are_posted_again_for_the_writes_of_the_next_notification) {
    constexpr std::size_t length = 200000;
    connect_devices(2);
    Request first;
    Request second;
    {
        const PostFilter filter = fail_each(IBV_WR_SEND, ENOMEM);
        first = put_notify(0, length, pattern(8, 1));
        EXPECT_EQ(posted_calls(), "w w f");
        second = put_notify(length, length, pattern(8, 2));
        EXPECT_EQ(posted_calls(), "w w f w w");
    }
    EXPECT_TRUE(next() == pattern(8, 1));
    EXPECT_TRUE(received(0, 0, length));
    EXPECT_TRUE(next() == pattern(8, 2));
    EXPECT_TRUE(received(length, length, length));
    expect_complete(first, length);
    expect_complete(second, length);
    EXPECT_EQ(posted_calls().substr(0, 15), "w w f w w m f m");
    std::vector<std::uint32_t> numbers;
    for (const Send& send : record().sends) {
        if (send.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
            numbers.push_back(Immediate::decode(be32toh(send.request.imm_data)).request);
        }
    }
    EXPECT_EQ(numbers, (std::vector<std::uint32_t>{1, 2}));
}

} // namespace
} // namespace rdmabuf::testing
