// SPDX-License-Identifier: BSD-3-Clause
// The work requests of transfer lists: how many of them one call of ibv_post_send(3) posts, and
// what happens if it posts only some of them.
#include <algorithm>
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

using transport::PreparedList;
using transport::TransferEntry;

class ListPosting : public FeaturesTest {
  protected:
    static constexpr std::size_t block = 100;

    /// Connects two endpoints, and makes a list of @p count blocks. The last block of the left
    /// memory is written to the first block of the right memory.
    void connect_with_list(std::size_t count) {
        connect_with_memory();
        remote_ = remote();
        for (std::size_t i = 0; i < count; ++i) {
            entries_.push_back({.memory = &from_->memory(),
                                .address = from_->data(i * block),
                                .length = block,
                                .remote = &remote_,
                                .offset = (count - 1 - i) * block});
        }
        settle();
        forget_calls();
    }
    Request write_list() {
        Request request;
        EXPECT_EQ(left().iput_list(entries_, request), code(0));
        return request;
    }
    void expect_written(Request& request) {
        const Completion completion = complete(left(), request);
        EXPECT_EQ(completion.error, code(0)) << left().reason();
        EXPECT_EQ(completion.bytes, entries_.size() * block);
        settle(); // With SOFTVERBS_DISORDER, data may arrive after the completion.
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            ASSERT_TRUE(received(entries_[i].offset, i * block, block)) << i;
        }
    }
    /// Returns the number of posted work requests of lists.
    static std::size_t posted() {
        return static_cast<std::size_t>(std::ranges::count_if(record().sends, [](const Send& send) {
            return send.entries.size() == 1 && send.entries[0].length == block;
        }));
    }
    [[nodiscard]] TransferEntry empty_entry() const {
        return {.memory = &from_->memory(), .address = from_->data(), .remote = &remote_};
    }
    static bool is_of_list(const ibv_send_wr& work) {
        return work.opcode == IBV_WR_RDMA_WRITE && work.num_sge == 1 &&
               work.sg_list[0].length == block;
    }
    /// Returns the work requests of the list in the order in which they were posted: "w", or "W" if
    /// it is signaled. A space separates the calls of ibv_post_send(3).
    static std::string posted_calls() {
        std::string calls;
        unsigned call = 0;
        for (const Send& send : record().sends) {
            if (send.entries.size() != 1 || send.entries[0].length != block) {
                continue;
            }
            if (!calls.empty() && send.call != call) {
                calls += ' ';
            }
            call = send.call;
            calls += (send.request.send_flags & IBV_SEND_SIGNALED) != 0 ? 'W' : 'w';
        }
        return calls;
    }

    std::vector<TransferEntry> entries_;
    RemoteMemory remote_;
};

TEST_F(ListPosting, posts_32_work_requests_by_one_call_with_one_completion) {
    connect_with_list(40);
    Request request = write_list();
    EXPECT_EQ(posted_calls(), std::string(31, 'w') + "W wwwwwwwW");
    expect_written(request);
}

TEST_F(ListPosting, posts_an_equal_part_of_a_short_list_on_each_queue_pair) {
    options_.queue_pairs_per_device = 2;
    connect_with_list(7);
    Request request = write_list();
    EXPECT_EQ(posted_calls(), "wwwW wwW");
    EXPECT_NE(record().sends.front().queue_pair, record().sends.back().queue_pair);
    expect_written(request);
}

TEST_F(ListPosting, goes_on_when_the_send_queue_has_room_again) {
    options_.send_depth = 16;
    connect_with_list(1000);
    Request request = write_list();
    expect_written(request);
    EXPECT_EQ(posted(), 1000);
}

TEST_F(ListPosting, writes_and_reads_a_prepared_list_as_often_as_it_is_started) {
    connect_with_list(40);
    PreparedList list;
    ASSERT_EQ(left().prepare_put_list(entries_, list), code(0));
    for (std::uint8_t round = 1; round < 4; ++round) {
        from_->fill(pattern(memory_size, round));
        Request first;
        Request second;
        ASSERT_EQ(left().iput_prepared_list(list, first), code(0));
        ASSERT_EQ(left().iput_prepared_list(list, second, std::as_bytes(std::span(&round, 1))),
                  code(0));
        expect_written(first);
        expect_written(second);
        EXPECT_EQ(next(), std::vector<std::byte>{std::byte{round}});
    }
    PreparedList read;
    ASSERT_EQ(left().prepare_get_list(entries_, read), code(0));
    from_->fill(std::vector<std::byte>(memory_size));
    Request request;
    ASSERT_EQ(left().iget_prepared_list(read, request), code(0));
    expect_written(request);
    EXPECT_FALSE(from_->bytes(0, block) == std::vector<std::byte>(block));
}

TEST_F(ListPosting, refuses_a_list_that_was_not_prepared_for_this_operation_of_this_channel) {
    connect_with_list(2);
    Request request;
    PreparedList list;
    EXPECT_EQ(left().iput_prepared_list(list, request), code(EINVAL));
    entries_[1].length = memory_size + 1;
    EXPECT_EQ(left().prepare_put_list(entries_, list), code(ERANGE));
    EXPECT_EQ(left().iput_prepared_list(list, request), code(EINVAL));
    entries_[1].length = block;
    ASSERT_EQ(left().prepare_put_list(entries_, list), code(0));
    EXPECT_EQ(left().iget_prepared_list(list, request), code(EINVAL));
    transport::Listener listener = listen();
    auto [another, its_peer] = connect_another(left_end(), listener);
    EXPECT_EQ(another.iput_prepared_list(list, request), code(EINVAL));
    static_cast<void>(left().close());
    EXPECT_EQ(left().iput_prepared_list(list, request), code(EBADF));
    EXPECT_EQ(left().prepare_put_list(entries_, list), code(EBADF));
}

TEST_F(ListPosting, posts_at_most_one_more_entry_after_it_was_cancelled) {
    for (const std::uint32_t queue_pairs : {1U, 2U}) {
        SCOPED_TRACE(queue_pairs);
        disconnect_all();
        entries_.clear();
        options_.send_depth = 16;
        options_.queue_pairs_per_device = queue_pairs;
        connect_with_list(1000);
        Request request;
        ASSERT_EQ(left().iput_list(entries_, request, std::span<const std::byte>()), code(0));
        const std::array empty_first = {empty_entry(), entries_.front()};
        Request waiting;
        ASSERT_EQ(left().iput_list(empty_first, waiting, std::span<const std::byte>()), code(0));
        ASSERT_EQ(left().cancel(waiting), code(0));
        const Completion cancelled = left().test(waiting);
        EXPECT_TRUE(cancelled.done);
        EXPECT_EQ(cancelled.error, code(ECANCELED));
        ASSERT_EQ(left().cancel(request), code(0));
        EXPECT_EQ(left().cancel(request), code(EALREADY));
        EXPECT_EQ(complete(left(), request).error, code(ECANCELED));
        EXPECT_LE(posted(), std::size_t{16} * queue_pairs + 1);
        EXPECT_EQ(right().notification(), std::nullopt);

        entries_.resize(1);
        Request next = write_list();
        EXPECT_EQ(left().cancel(next), code(EALREADY)); // It is already posted.
        expect_written(next);
    }
}

TEST_F(ListPosting, skips_empty_entries) {
    for (const std::uint32_t queue_pairs : {1U, 2U}) {
        SCOPED_TRACE(queue_pairs);
        disconnect_all();
        entries_.clear();
        options_.queue_pairs_per_device = queue_pairs;
        connect_with_list(3);
        entries_.insert(entries_.begin(), empty_entry());
        entries_.insert(entries_.begin() + 2, empty_entry());
        entries_.push_back(empty_entry());
        Request request = write_list();
        EXPECT_EQ(posted_calls(), "wwW");
        EXPECT_EQ(complete(left(), request).bytes, 3 * block);
        settle();
        for (std::size_t i = 0; i < 3; ++i) {
            EXPECT_TRUE(received((2 - i) * block, i * block, block)) << i;
        }
    }
}

// A second queue pair that does not accept a work request is left out.
TEST_F(ListPosting, posts_the_rest_later_or_ends_with_its_channel_if_a_work_request_is_invalid) {
    for (const auto& [queue_pairs, error] :
         {std::pair(1U, ENOMEM), {1U, EINVAL}, {2U, ENOMEM}, {2U, EINVAL}}) {
        // The positions are those of the first, a middle and the last work request of a call.
        for (const std::size_t refused : {0U, 5U, 19U, 20U, 25U, 31U, 32U, 39U}) {
            SCOPED_TRACE(std::to_string(refused) + " of 40 on " + std::to_string(queue_pairs) +
                         ", error " + std::to_string(error));
            disconnect_all();
            entries_.clear();
            options_.queue_pairs_per_device = queue_pairs;
            connect_with_list(40);
            std::size_t position = 0;
            const PostFilter filter(left_end().protection_domain().context().native(),
                                    [&, code = error](const ibv_qp&, const ibv_send_wr& work) {
                                        return is_of_list(work) && position++ == refused ? code : 0;
                                    });
            const bool ends = error == EINVAL && (queue_pairs == 1 || refused < 20);
            Request request = write_list();
            if (ends) {
                EXPECT_EQ(complete(left(), request).error, code(EINVAL));
            } else {
                expect_written(request);
            }
            EXPECT_EQ(left().state(), code(ends ? EIO : 0));
            EXPECT_EQ(left().in_flight(), 0);
        }
    }
}

// A list of which a part is posted ends only after a signaled work request has completed.
TEST_F(ListPosting, cancels_the_rest_after_a_refused_work_request_beside_an_empty_entry) {
    for (const std::size_t accepted : {0U, 1U}) {
        SCOPED_TRACE(accepted);
        disconnect_all();
        entries_.clear();
        connect_with_list(3);
        entries_.insert(entries_.begin() + static_cast<std::ptrdiff_t>(accepted), empty_entry());
        std::size_t position = 0;
        const PostFilter filter(left_end().protection_domain().context().native(),
                                [&](const ibv_qp&, const ibv_send_wr& work) {
                                    return is_of_list(work) && position++ == accepted ? ENOMEM : 0;
                                });
        Request request;
        ASSERT_EQ(left().iput_list(entries_, request), code(0));
        EXPECT_EQ(posted(), accepted);
        EXPECT_EQ(left().cancel(request), code(0));
        EXPECT_EQ(complete(left(), request).error, code(ECANCELED));
        EXPECT_EQ(posted_calls(), accepted == 0 ? "" : "w W");
    }
}

TEST_F(ListPosting, ends_with_eacces_if_the_memory_of_one_block_was_deregistered) {
    connect_with_list(40);
    auto other = right_memory(block);
    const RemoteMemory gone = other.memory().remote().value();
    other.deregister();
    right_end().cache().clear();
    entries_[7].remote = &gone;
    entries_[7].offset = 0;
    Request request = write_list();
    EXPECT_EQ(complete(left(), request).error, code(EACCES));
    EXPECT_NE(left().state(), code(0));
    EXPECT_EQ(left().in_flight(), 0);
}

} // namespace
} // namespace rdmabuf::testing
