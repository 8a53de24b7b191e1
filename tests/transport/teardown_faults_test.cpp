// SPDX-License-Identifier: BSD-3-Clause
// Each verbs call that destroys an object of the transport fails once.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "features_fixture.hpp"
#include "prepared_channels_fixture.hpp"
#include "recorder/verbs_recorder.hpp"
#include "stopped_clock.hpp"

namespace rdmabuf::testing {
namespace {

/// A call that destroys an object.
struct Verb {
    const char* name;
    /// The kind of the object, as in Record::not_destroyed.
    const char* kind;
    /// The kinds of the objects that an object of this kind uses. They cannot be destroyed, either.
    std::set<std::string> used = {};
};
void PrintTo(const Verb& verb, std::ostream* out) { // NOLINT(readability-identifier-naming)
    *out << verb.name;
}

/// Destroys the objects that the library could not destroy.
void destroy_rest() {
    const auto rest = record().not_destroyed;
    for (const auto& [kind, object] : rest) {
        const int error = kind == "qp"    ? ibv_destroy_qp(static_cast<ibv_qp*>(object))
                          : kind == "cq"  ? ibv_destroy_cq(static_cast<ibv_cq*>(object))
                          : kind == "srq" ? ibv_destroy_srq(static_cast<ibv_srq*>(object))
                          : kind == "ah"  ? ibv_destroy_ah(static_cast<ibv_ah*>(object))
                          : kind == "mr"  ? ibv_dereg_mr(static_cast<ibv_mr*>(object))
                          : kind == "pd"  ? ibv_dealloc_pd(static_cast<ibv_pd*>(object))
                          : kind == "channel"
                              ? ibv_destroy_comp_channel(static_cast<ibv_comp_channel*>(object))
                          : kind == "context" ? ibv_close_device(static_cast<ibv_context*>(object))
                                              : EINVAL;
        EXPECT_EQ(error, 0) << kind;
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), 0U);
    // softverbs frees a context that was closed before its objects were destroyed when another
    // context is closed.
    static_cast<void>(Context::open_first());
}

class TeardownFaults : public PreparedChannels, public ::testing::WithParamInterface<Verb> {
  protected:
    TeardownFaults() {
        options_.receive_buffers = 16;
        options_.send_buffers = 4;
        options_.linger = 10ms;
    }

    /// Creates objects of all kinds: a channel that is connected by a handle, a channel that is
    /// connected by addresses, which needs UD queue pairs and address handles, and memory of a
    /// dma-buf, which needs loopback queue pairs.
    void create_all() {
        ASSERT_NO_FATAL_FAILURE(TransportTest::connect());
        first_.emplace(*std::move(left_));
        second_.emplace(*std::move(right_));
        ASSERT_NO_FATAL_FAILURE(connect_ends());
        pass_messages();
    }
    void pass_messages() {
        TestMemory from = left_memory(20000);
        const TestMemory to = right_memory(20000, Kind::dmabuf);
        from.fill(pattern(20000));
        pass(from, to, 100);
        pass(from, to, 20000);
    }
    void destroy_all() {
        first_.reset();
        second_.reset();
        left_prepared_.reset();
        right_prepared_.reset();
        disconnect();
    }
    std::optional<Channel> first_;
    std::optional<Channel> second_;
};

INSTANTIATE_TEST_SUITE_P(
    of, TeardownFaults,
    ::testing::Values(Verb{"ibv_destroy_qp", "qp", {"cq", "srq", "pd", "channel", "context"}},
                      Verb{"ibv_destroy_ah", "ah", {"pd", "context"}},
                      Verb{"ibv_dereg_mr", "mr", {"pd", "context"}},
                      Verb{"ibv_destroy_srq", "srq", {"pd", "context"}},
                      Verb{"ibv_destroy_cq", "cq", {"channel", "context"}},
                      Verb{"ibv_destroy_comp_channel", "channel", {"context"}},
                      Verb{"ibv_dealloc_pd", "pd", {"context"}},
                      Verb{"ibv_close_device", "context"}),
    [](const auto& value) { return std::string(value.param.name); });

TEST_P(TeardownFaults, are_reported_and_leak_only_the_object_and_those_that_it_uses) {
    const Verb& verb = GetParam();
    unsigned n = 1;
    for (bool happened = true; happened; ++n) {
        ASSERT_LT(n, 100U);
        SCOPED_TRACE(n);
        ASSERT_NO_FATAL_FAILURE(create_all());
        forget_calls();
        ASSERT_EQ(softverbs_fail_call(verb.name, n, EIO), 0);
        destroy_all();
        happened = all_failed();
        softverbs_clear_faults();
        std::map<std::string, int> leaked;
        for (const auto& [kind, object] : record().not_destroyed) {
            ++leaked[kind];
        }
        const auto failures = take_teardown_failures();
        if (happened) {
            EXPECT_EQ(leaked[verb.kind], 1);
            EXPECT_THAT(failures, ::testing::Contains(::testing::Pair(verb.name, EIO)));
        }
        for (const auto& [kind, count] : leaked) {
            EXPECT_TRUE(happened && (kind == verb.kind || verb.used.contains(kind))) << kind;
            EXPECT_LE(count, 2) << kind;
        }
        EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), record().not_destroyed.size());
        EXPECT_EQ(failures.size(), record().not_destroyed.size());
        destroy_rest();
        ignore_violations();
        if (HasFailure()) {
            return;
        }
    }
    EXPECT_GT(n, 2U);
}

using FailedClose = FeaturesTest;

// The queue pair still uses the completion queue and the receive buffers that all channels share.
TEST_F(FailedClose, of_a_queue_pair_does_not_affect_the_other_channels) {
    options_.receive_buffers = 16;
    connect_with_memory();
    connect_third();
    forget_calls();
    fail_next("ibv_destroy_qp", EIO);
    static_cast<void>(right_of_third().close());
    EXPECT_TRUE(all_failed());
    EXPECT_EQ(record().not_destroyed.size(), 1U);
    // More messages than the endpoint has receive buffers
    for (int i = 0; i < 40; ++i) {
        pass(*from_, *to_, 100);
        pass(*from_, *to_, 20000);
    }
    EXPECT_EQ(right().state(), code(0)) << right().reason();
    disconnect_all();
    EXPECT_THAT(take_teardown_failures(),
                ::testing::Contains(::testing::Pair("ibv_destroy_qp", EIO)));
    destroy_rest();
    ignore_violations();
}

// The queue pair can neither be moved to the error state nor be destroyed.
TEST_F(FailedClose, of_a_queue_pair_ends_the_receives_of_its_channel) {
    connect_with_memory();
    connect_third();
    Request request;
    int context = 0;
    ASSERT_EQ(
        right_of_third().irecv_masked(to_->memory(), to_->data(), 100, 1, 0, request, &context),
        code(0));
    settle();
    forget_calls();
    {
        const StoppedClock clock;
        for (unsigned nth = 1; nth <= 3; ++nth) {
            ASSERT_EQ(softverbs_fail_call("ibv_modify_qp", nth, EIO), 0);
        }
        for (unsigned nth = 1; nth <= 1000; ++nth) {
            ASSERT_EQ(softverbs_fail_call("ibv_destroy_qp", nth, EIO), 0);
        }
        std::error_code closed = code(EAGAIN);
        for (int steps = 0; steps < 100 && closed == code(EAGAIN); ++steps) {
            closed = right_of_third().try_close(false);
            StoppedClock::advance(100ms);
        }
        EXPECT_EQ(closed, code(0));
        softverbs_clear_faults();
    }
    pass(*from_, *to_, 100, 7);
    std::array<Completion, 2> completions;
    ASSERT_EQ(right_end().poll_completions(completions), 1);
    EXPECT_EQ(completions[0].context, &context);
    EXPECT_EQ(completions[0].error, code(EIO));
    pass(*from_, *to_, 100, 7);
    disconnect_all();
    EXPECT_THAT(take_teardown_failures(),
                ::testing::Contains(::testing::Pair("ibv_destroy_qp", EIO)));
    destroy_rest();
    ignore_violations();
}

} // namespace
} // namespace rdmabuf::testing
