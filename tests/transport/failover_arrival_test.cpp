// SPDX-License-Identifier: BSD-3-Clause
// A failed queue pair: data that the peer has already used is not written again, and a fence
// follows all data that is written again.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "failover_fixture.hpp"
#include "poll_counter.hpp"
#include "post_filter.hpp"
#include "stopped_clock.hpp"

namespace rdmabuf::testing {
namespace {

using transport::TransferEntry;
using transport::detail::Header;

class FailoverArrival : public Failover {
  protected:
    using Kind = transport::detail::Kind;

    static constexpr std::size_t length = 100000;

    /// Makes progress at the right end only, until it has a notification of 8 bytes.
    void await_notification() {
        ASSERT_TRUE(eventually([&] { return right().notification().has_value(); }))
            << right().reason();
    }
    /// Waits until the right end has a notification; the left end polls no completion. The right
    /// end then writes other data to its memory. Then the second queue pair fails, and its
    /// acknowledgements are lost.
    void fail_after_notification(Request& request) {
        ASSERT_NO_FATAL_FAILURE(await_notification());
        EXPECT_TRUE(received(0, 0, length));
        const std::vector<std::byte> newer = pattern(length, 9);
        to_->fill(newer);
        const PollCounter lost(left_end().protection_domain(1).context(), poll_as_flushed);
        ASSERT_NO_FATAL_FAILURE(fail_queue_pair(*from_, 1));
        EXPECT_EQ(complete(left(), request).error, code(0)) << left().reason();
        // This message arrives after the last writes of the failover.
        pass(*from_, *to_, 100, 1, 0, length);
        settle();
        EXPECT_EQ(left().working_rails(), 1);
        EXPECT_TRUE(to_->bytes(0, length) == newer) << "older data was written again";
    }

  private:
    /// Replaces ibv_poll_cq() of a device: the acknowledgements of all writes are lost.
    static int poll_as_flushed(ibv_cq* cq, int count, ibv_wc* completions) {
        const int polled = PollCounter::poll(cq, count, completions);
        for (int i = 0; i < polled; ++i) {
            if (completions[i].opcode == IBV_WC_RDMA_WRITE) {
                completions[i].status = IBV_WC_WR_FLUSH_ERR;
            }
        }
        return polled;
    }
};

TEST_F(FailoverArrival, does_not_write_again_what_a_notification_has_followed) {
    constexpr std::size_t count = 10;
    for (const bool is_list : {false, true}) {
        SCOPED_TRACE(is_list);
        ASSERT_NO_FATAL_FAILURE(connect_devices());
        const RemoteMemory there = remote();
        std::vector<TransferEntry> entries;
        for (std::size_t k = 0; k < count; ++k) {
            entries.push_back({.memory = &from_->memory(),
                               .address = from_->data(k * length / count),
                               .length = length / count,
                               .remote = &there,
                               .offset = k * length / count});
        }
        settle();
        Request request;
        ASSERT_EQ(is_list ? left().iput_list(entries, request, pattern(8))
                          : left().iput_notify(from_->memory(), from_->data(), length, there, 0, 7,
                                               request),
                  code(0));
        ASSERT_NO_FATAL_FAILURE(fail_after_notification(request));
    }
}

// Two queue pairs fail. The right end reports the failure of the second one later.
TEST_F(FailoverArrival, ends_a_fence_after_the_data_of_all_failed_queue_pairs) {
    for (int i = 0; i < 5; ++i) {
        SCOPED_TRACE(i);
        ASSERT_NO_FATAL_FAILURE(connect_devices(3));
        clear_received();
        const RemoteMemory there = remote();
        settle();
        bool holds = true;
        const PostFilter filter(
            right_end().protection_domain().context().native(),
            [&holds](const ibv_qp&, const ibv_send_wr& work) {
                Header header;
                if (!holds || work.opcode != IBV_WR_SEND ||
                    work.sg_list[0].length < sizeof header) {
                    return 0;
                }
                std::memcpy(&header,
                            // NOLINTNEXTLINE(*-no-int-to-ptr)
                            reinterpret_cast<const void*>(work.sg_list[0].addr), sizeof header);
                return header.kind == Kind::rail_down && header.rails == 2 ? ENOMEM : 0;
            });
        Request put;
        Request fence;
        ASSERT_EQ(left().iput(from_->memory(), from_->data(), 300000, there, 0, put), code(0));
        ASSERT_EQ(left().ifence(fence), code(0));
        ASSERT_NO_FATAL_FAILURE(fail_queue_pair(*from_, 1));
        ASSERT_NO_FATAL_FAILURE(fail_queue_pair(*from_, 2));
        const auto fenced = [&] {
            const Completion completion = left().test(fence);
            if (completion.done) {
                EXPECT_EQ(completion.error, code(0)) << left().reason();
                EXPECT_TRUE(received(0, 0, 300000))
                    << "the fence has ended before the data arrived";
            }
            return completion.done;
        };
        bool done = false;
        for (int calls = 0; calls < 2000 && !done; ++calls) {
            progress_all();
            done = fenced();
        }
        holds = false;
        EXPECT_TRUE(done || progress_until(fenced));
        EXPECT_EQ(complete(left(), put).error, code(0)) << left().reason();
    }
}

/// Replaces ibv_poll_cq() of a device that no longer responds.
int poll_nothing(ibv_cq*, int, ibv_wc*) {
    return 0;
}

// With a short timeout, a device counts as failed after 5 seconds without a completion.
TEST_F(FailoverArrival, leaves_out_a_device_that_reports_no_completions) {
    options_.ack_timeout = 8; // 1 ms
    options_.retry_count = 1;
    options_.heartbeat = 100ms;
    options_.read_async_events = false;
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    settle();
    {
        const PollCounter silent(left_end().protection_domain(1).context(), poll_nothing);
        const std::uint32_t number = last_queue_pair(*from_, 1)->qp_num;
        const RemoteMemory there = remote();
        Request put;
        ASSERT_EQ(left().iput(from_->memory(), from_->data(), 300000, there, 0, put), code(0));
        const TransferEntry entry = {
            .memory = &from_->memory(), .address = from_->data(), .length = 10, .remote = &there};
        const std::vector<TransferEntry> entries(40, entry);
        Request list;
        ASSERT_EQ(left().iput_list(entries, list), code(0));
        EXPECT_EQ(complete(left(), put).error, code(0)) << left().reason();
        EXPECT_EQ(complete(left(), list).error, code(0)) << left().reason();
        EXPECT_EQ(left().working_rails(), 1);
        EXPECT_STREQ(left().rail_reason(1), "the device reports no completions");
        EXPECT_EQ(left().endpoint()->shared.rails[1]->queue_pairs.find(number).channel, nullptr);
        EXPECT_EQ(left().state(), code(0));
    }
    pass(*from_, *to_, 300000);
}

TEST_F(FailoverArrival, destroys_the_queue_pairs_of_dead_devices_before_their_requests_end) {
    options_.timeout = 100ms;
    options_.heartbeat = 1h;
    options_.read_async_events = false;
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    settle();
    const StoppedClock clock;
    std::map<ibv_context*, decltype(ibv_context_ops::poll_cq)> polls;
    for (std::size_t i = 0; i < left_end().rails(); ++i) {
        ibv_context* const context = left_end().protection_domain(i).context().native();
        polls[context] = std::exchange(context->ops.poll_cq, poll_nothing);
    }
    Request get;
    ASSERT_EQ(left().iget(from_->memory(), from_->data(), 300000, remote(), 0, get), code(0));
    const std::size_t before = softverbs_live(SOFTVERBS_QP);
    StoppedClock::advance(100ms);
    EXPECT_FALSE(after_a_while(left(), get).done);
    StoppedClock::advance(1s);
    EXPECT_FALSE(after_a_while(left(), get).done);
    EXPECT_EQ(softverbs_live(SOFTVERBS_QP), before);
    StoppedClock::advance(1ns);
    EXPECT_EQ(after_a_while(left(), get).error, code(ETIMEDOUT));
    EXPECT_EQ(softverbs_live(SOFTVERBS_QP), before - left().rails());
    for (const auto& [context, poll] : polls) {
        context->ops.poll_cq = poll;
    }
}

TEST_F(FailoverArrival, is_completed_by_an_end_that_sleeps_until_its_descriptor_is_readable) {
    use_devices(2);
    open();
    // Only the device of the right end will fail, so it has contexts of its own.
    std::vector<Context> contexts;
    for (const Device& device : DeviceList()) {
        contexts.emplace_back(device);
    }
    auto opened = Endpoint::open(contexts, resolver_, options_);
    ASSERT_TRUE(opened.ok()) << opened.message();
    right_end_.emplace(*std::move(opened));
    transport::Listener listener = listen();
    auto channels = connect_another(left_end(), listener);
    Channel& writer = channels.first;
    const TestMemory from = left_memory(300000);
    const TestMemory to = right_memory(300000);
    const auto remote = to.memory().remote();
    ASSERT_TRUE(remote.ok());
    bool sleeps = false; // The right end has no request in flight.
    const auto step = [&] {
        left_end().progress();
        if (!sleeps || is_readable(right_end().descriptor())) {
            right_end().progress();
            sleeps = right_end().arm();
        }
    };
    ASSERT_TRUE(eventually([&] { return sleeps; }, step));
    ASSERT_EQ(softverbs_fail_device(contexts[1].native()), 0);
    Request put;
    ASSERT_EQ(writer.iput(from.memory(), from.data(), 300000, *remote, 0, put), code(0));
    Completion completion;
    EXPECT_TRUE(eventually(
        [&] {
            completion = writer.test(put);
            return completion.done;
        },
        step));
    EXPECT_EQ(completion.error, code(0)) << writer.reason();
    // The timer of the recovery may expire in between.
    EXPECT_TRUE(eventually([&] { return sleeps && !is_readable(right_end().descriptor()); }, step));
}

// The time `linger` ends before a device that reports no completions counts as dead.
TEST_F(Failover, of_an_idle_device_does_not_delay_closing) {
    options_.linger = 500ms;
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    pass(*from_, *to_, 300000);
    settle();
    const StoppedClock clock;
    ASSERT_NO_FATAL_FAILURE(fail(Failure::of_device));
    std::error_code closed = code(EAGAIN);
    for (int steps = 0; steps < 1000 && closed == code(EAGAIN); ++steps) {
        closed = left().try_close();
        right_end().wait(0ms);
        StoppedClock::advance(5ms);
    }
    EXPECT_EQ(closed, code(0));
    EXPECT_EQ(right().state(), code(ECONNRESET));
}

TEST_F(Failover, of_a_port_leaves_its_device_out_of_new_channels) {
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    transport::Listener listener = listen();
    ASSERT_NO_FATAL_FAILURE(fail(Failure::of_port));
    for (const std::size_t rails : {1U, 2U}) {
        const auto channels = connect_another(left_end(), listener);
        EXPECT_EQ(channels.first.rails(), rails);
        EXPECT_EQ(channels.second.rails(), rails);
        ASSERT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_ACTIVE), 0);
    }
}

// The device repeats keepalive writes for longer than `linger`.
TEST_F(Failover, of_a_port_does_not_delay_closing) {
    options_.ack_timeout = 16; // 268 ms
    for (const bool probed : {false, true}) {
        SCOPED_TRACE(probed ? "a keepalive write is in flight" : "the channel is idle");
        ASSERT_NO_FATAL_FAILURE(connect_devices());
        pass(*from_, *to_, 300000);
        settle();
        const StoppedClock clock;
        ASSERT_NO_FATAL_FAILURE(fail(Failure::of_port));
        Request pending;
        if (probed) {
            ASSERT_EQ(left().irecv(from_->memory(), from_->data(), 8, 1, pending), code(0));
            for (int steps = 0; steps < 3; ++steps) {
                StoppedClock::advance(options_.heartbeat / 2);
                left_end().wait(0ms);
            }
        }
        ASSERT_EQ(left().send_copy(pattern(8), 2), code(0));
        std::error_code closed = code(EAGAIN);
        for (int steps = 0; steps < 1000 && closed == code(EAGAIN); ++steps) {
            closed = left().try_close();
            right_end().wait(0ms);
            StoppedClock::advance(1ms);
        }
        EXPECT_EQ(closed, code(0));
        EXPECT_STREQ(right().reason(), "the peer has closed the channel");
    }
}

} // namespace
} // namespace rdmabuf::testing
