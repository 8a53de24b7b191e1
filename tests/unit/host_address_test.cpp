// SPDX-License-Identifier: BSD-3-Clause
#include "connection/host_address.hpp"

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fails_with.hpp"
#include "support.hpp"

namespace rdmabuf::detail {
namespace {

using rdmabuf::testing::error_of;
using rdmabuf::testing::fails_with;
using ::testing::ElementsAre;
using namespace std::chrono_literals;

/// What a name with several addresses resolves to.
struct Several {
    HostAddresses first = resolve_host("127.0.0.1", 1);
    HostAddresses second = resolve_host("127.0.0.2", 2);
    HostAddresses third = resolve_host("::1", 3);

    Several() {
        first->ai_next = second.get();
        second->ai_next = third.get();
    }
    ~Several() { first->ai_next = second->ai_next = nullptr; }
    Several(const Several&) = delete;
    Several& operator=(const Several&) = delete;
};

TEST(host_addresses, are_written_as_people_write_them) {
    EXPECT_EQ(to_string(*resolve_host("127.0.0.1", 4711)->ai_addr), "127.0.0.1:4711");
    EXPECT_EQ(to_string(*resolve_host("2001:db8::1", 80)->ai_addr), "[2001:db8::1]:80");
    EXPECT_EQ(to_string(sockaddr{}), "an address of family 0");
}

TEST(host_addresses, are_tried_in_order_until_one_works) {
    const Several several;
    std::vector<std::string> tried;
    const int result = try_each(several.first, Deadline(1s), [&](const addrinfo& each, Deadline) {
        tried.push_back(to_string(*each.ai_addr));
        if (tried.size() < 2) {
            throw Error(ENETUNREACH, "connect", "first");
        }
        return 42;
    });
    EXPECT_EQ(result, 42);
    EXPECT_THAT(tried, ElementsAre("127.0.0.1:1", "127.0.0.2:2"));
}

TEST(host_addresses, share_the_time_so_that_a_silent_one_leaves_some_for_the_others) {
    const Several several;
    std::vector<std::chrono::milliseconds> times;
    const int last = try_each(several.first, Deadline(300s), [&](const addrinfo&, Deadline time) {
        times.push_back(time.left());
        if (times.size() < 3) {
            throw Error(ETIMEDOUT, "connect", "");
        }
        return 0;
    });
    EXPECT_EQ(last, 0);
    ASSERT_EQ(times.size(), 3U);
    EXPECT_NEAR(static_cast<double>(times[0].count()), 100'000, 10'000);
    EXPECT_NEAR(static_cast<double>(times[1].count()), 150'000, 10'000);
    EXPECT_NEAR(static_cast<double>(times[2].count()), 300'000, 10'000);
}

TEST(host_addresses, that_all_fail_give_the_most_telling_error_and_name_every_one) {
    const Several several;
    std::vector<Error> errors = {Error(ECONNREFUSED, "connect", "a"), Error(ETIMEDOUT, "bind", "b"),
                                 Error(ENETUNREACH, "socket", "c")};
    const auto fail_with_each = [&] {
        std::size_t next = 0;
        return error_of([&] {
            static_cast<void>(try_each(
                several.first, Deadline(1s),
                [&](const addrinfo&, Deadline) -> int { throw Error(errors.at(next++)); }));
        });
    };
    EXPECT_THAT(
        fail_with_each(),
        fails_with(ECONNREFUSED,
                   "connect: Connection refused (ECONNREFUSED): none of 3 addresses worked: "
                   "connect: Connection refused (ECONNREFUSED): a; bind: Connection timed "
                   "out (ETIMEDOUT): b; socket: Network is unreachable (ENETUNREACH): c"));
    errors.front() = Error(EACCES, "connect", "a");
    EXPECT_THAT(fail_with_each(), fails_with(ETIMEDOUT, "bind: "));
    errors.at(1) = Error(EACCES, "bind", "b");
    EXPECT_THAT(fail_with_each(), fails_with(ENETUNREACH, "socket: "));
}

TEST(host_addresses, of_which_there_is_one_give_its_own_error) {
    EXPECT_THAT(error_of([] {
                    static_cast<void>(try_each(resolve_host("127.0.0.1", 1), Deadline(1s),
                                               [](const addrinfo&, Deadline) -> int {
                                                   throw Error(EACCES, "bind", "b");
                                               }));
                }),
                fails_with(EACCES, "bind: Permission denied (EACCES): b"));
}

TEST(deadlines, run_out_or_never_do) {
    EXPECT_EQ(Deadline(0ms).left(), 0ms);
    EXPECT_LT(Deadline(-1ms).left(), 0ms);
    EXPECT_LT(Deadline(-1ms).part(3).left(), 0ms);
    // Longer than the clock can count.
    EXPECT_GT(Deadline(std::chrono::milliseconds::max()).left(), std::chrono::hours(24 * 365));
}

} // namespace
} // namespace rdmabuf::detail
