// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/unique_fd.hpp>

#include "support.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using testing::TeardownFailures;

int make_fd() {
    return ::eventfd(0, EFD_CLOEXEC);
}
bool is_open(int fd) {
    return ::fcntl(fd, F_GETFD) >= 0;
}

TEST(UniqueFd, OfNothingIsMinusOne) {
    const UniqueFd fd;
    EXPECT_EQ(fd.get(), -1);
    EXPECT_FALSE(fd);
}

TEST(UniqueFd, TakesZeroForADescriptor) {
    UniqueFd fd(0);
    EXPECT_TRUE(fd);
    EXPECT_EQ(fd.release(), 0);
}

TEST(UniqueFd, MovesWithoutClosing) {
    UniqueFd fd(make_fd());
    const int number = fd.get();
    UniqueFd other = std::move(fd);
    EXPECT_EQ(fd.get(), -1); // NOLINT(bugprone-use-after-move): what this is about
    EXPECT_EQ(other.get(), number);
    EXPECT_TRUE(is_open(number));

    UniqueFd third(make_fd());
    const int replaced = third.get();
    third = std::move(other);
    EXPECT_FALSE(is_open(replaced));
    EXPECT_EQ(third.get(), number);
}

TEST(UniqueFd, MovedToItselfKeepsItsDescriptor) {
    UniqueFd fd(make_fd());
    UniqueFd& same = fd;
    const int number = fd.get();
    fd = std::move(same);
    EXPECT_EQ(fd.get(), number);
    EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, ReleasedIsTheCallersToClose) {
    int number = -1;
    {
        UniqueFd fd(make_fd());
        number = fd.release();
    }
    EXPECT_TRUE(is_open(number));
    EXPECT_EQ(::close(number), 0);
}

TEST(UniqueFd, ReportsADescriptorThatSomebodyElseClosed) {
    const TeardownFailures failures;
    {
        const UniqueFd fd(make_fd());
        ::close(fd.get());
    }
    EXPECT_THAT(TeardownFailures::seen(), ElementsAre(Pair("close", EBADF)));
}

TEST(UniqueFd, DuplicatesCloseOnExec) {
    const UniqueFd fd(make_fd());
    const UniqueFd copy = fd.duplicate();
    EXPECT_NE(copy.get(), fd.get());
    EXPECT_TRUE(testing::closed_on_exec(copy.get()));
    const std::uint64_t value = 3;
    ASSERT_EQ(::write(fd.get(), &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
    std::uint64_t read = 0;
    ASSERT_EQ(::read(copy.get(), &read, sizeof(read)), static_cast<ssize_t>(sizeof(read)));
    EXPECT_EQ(read, value);
}

TEST(UniqueFd, IsClosedInAThreadThatIsBeingCancelled) {
    UniqueFd fd(make_fd());
    const int number = fd.get();
    std::thread thread([&] {
        ::pthread_cancel(::pthread_self());
        fd.reset(); // close(2) is a cancellation point, and reset() is noexcept.
        ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    });
    thread.join();
    EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(UniqueFd, OfNothingHasNoDuplicate) {
    const auto error = testing::error_of([] { static_cast<void>(UniqueFd().duplicate()); });
    ASSERT_TRUE(error);
    EXPECT_STREQ(error->what(), "fcntl: Bad file descriptor (EBADF)");
}

} // namespace
} // namespace rdmabuf
