// SPDX-License-Identifier: BSD-3-Clause
// Requests on memory without a Memory object: their registrations come from the cache, are kept
// until the request ends, and are given back however it ends.
#include <vector>

#include <rdmabuf/transport.hpp>

#include "features_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class LeasedMemories : public FeaturesTest {
  protected:
    static constexpr std::size_t size = 300000;

    void open_channel() {
        connect();
        sent_ = pattern(size);
        received_.assign(size, std::byte{0});
        regions_ = regions();
    }
    [[nodiscard]] static std::size_t regions() { return softverbs_live(SOFTVERBS_MR); }
    /// Returns true if invalidate() of both buffers deregisters all memory. It does not deregister
    /// memory of a request in flight.
    [[nodiscard]] bool all_given_back() {
        invalidate();
        return regions() == regions_;
    }
    void invalidate() {
        left_end().cache().invalidate(reinterpret_cast<std::uintptr_t>(sent_.data()), size);
        right_end().cache().invalidate(reinterpret_cast<std::uintptr_t>(received_.data()), size);
    }
    [[nodiscard]] Request send_leased(std::size_t length) {
        Request request;
        EXPECT_EQ(left().isend(sent_.data(), length, 1, request), code(0));
        return request;
    }
    [[nodiscard]] Request receive_leased(std::size_t length) {
        Request request;
        EXPECT_EQ(right().irecv(received_.data(), length, 1, request), code(0));
        return request;
    }

    std::vector<std::byte> sent_;
    std::vector<std::byte> received_;
    std::size_t regions_ = 0;
};

TEST_F(LeasedMemories, stay_registered_until_their_requests_end) {
    open_channel();
    Request sent = send_leased(size);
    Request received = receive_leased(size);
    invalidate();
    EXPECT_EQ(regions(), regions_ + 2);
    EXPECT_EQ(complete(right(), received).error, code(0));
    EXPECT_EQ(complete(left(), sent).error, code(0));
    EXPECT_TRUE(received_ == sent_);
    EXPECT_EQ(regions(), regions_);
    received = receive_leased(9);
    sent = send_leased(9); // completes while it is started
    EXPECT_EQ(complete(right(), received).error, code(0));
    EXPECT_EQ(complete(left(), sent).error, code(0));
    EXPECT_TRUE(all_given_back());
}

TEST_F(LeasedMemories, are_given_back_by_cancelled_requests) {
    open_channel();
    const Request received = receive_leased(100);
    ASSERT_EQ(right().cancel(received), code(0));
    Request any;
    ASSERT_EQ(right_end().irecv(received_.data(), 100, 7, full_mask, any), code(0));
    ASSERT_EQ(right_end().cancel(any), code(0));
    EXPECT_TRUE(all_given_back());
}

TEST_F(LeasedMemories, are_given_back_when_the_channel_fails_or_is_closed) {
    for (const bool by_peer : {true, false}) {
        disconnect_all();
        open_channel();
        static_cast<void>(send_leased(size));
        Request received;
        ASSERT_EQ(right().irecv(received_.data(), 100, 2, received), code(0));
        EXPECT_EQ(regions(), regions_ + 2);
        (by_peer ? left() : right()).close();
        if (by_peer) {
            EXPECT_EQ(complete(right(), received).error, code(ECONNRESET));
        } else {
            EXPECT_TRUE(progress_until([&] { return left().in_flight() == 1 && left().state(); }));
            left_end().progress();
            left().close();
        }
        EXPECT_TRUE(all_given_back());
    }
}

TEST_F(LeasedMemories, are_given_back_by_calls_that_fail) {
    options_.depth = 1;
    open_channel();
    const Request sent = send_leased(size);
    static_cast<void>(sent);
    Request refused;
    std::vector<std::byte> other(size);
    EXPECT_EQ(left().isend(other.data(), size, 1, refused), code(EAGAIN));
    left_end().cache().invalidate(reinterpret_cast<std::uintptr_t>(other.data()), size);
    EXPECT_EQ(regions(), regions_ + 1);
}

TEST_F(LeasedMemories, that_cannot_be_registered_are_an_error_with_a_reason) {
    open_channel();
    Request request;
    EXPECT_EQ(left_end().registration_error().error(), 0);
    ASSERT_EQ(softverbs_fail_call("ibv_reg_mr", 1, EPERM), 0);
    EXPECT_EQ(left().isend(sent_.data(), size, 1, request), code(EPERM));
    EXPECT_EQ(left_end().registration_error().error(), EPERM);
    EXPECT_THAT(left_end().registration_error().message(), ::testing::HasSubstr("ibv_reg_mr"));
    EXPECT_EQ(left().state(), code(0));
    EXPECT_EQ(left().in_flight(), 0);
    // The next call succeeds.
    Request received = receive_leased(size);
    Request sent = send_leased(size);
    EXPECT_EQ(complete(right(), received).error, code(0));
    EXPECT_EQ(complete(left(), sent).error, code(0));
    EXPECT_TRUE(all_given_back());
}

} // namespace
} // namespace rdmabuf::testing
