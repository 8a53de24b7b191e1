// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <fstream>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace {

/// A memfd for which the interposed ioctl(2) behaves as for a dma-buf, and the recorded calls.
struct FakeDmaBuf {
    ino_t inode = 0;
    /// The errno with which the next call fails first; 0: none.
    int interruption = 0;
    std::vector<std::uint64_t> calls;
};
FakeDmaBuf fake; // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

} // namespace

extern "C" int __real_ioctl(int fd, unsigned long request, void* argument);  // NOLINT
extern "C" int __wrap_ioctl(int fd, unsigned long request, void* argument) { // NOLINT
    struct stat status {};
    if (request != DMA_BUF_IOCTL_SYNC || ::fstat(fd, &status) != 0 || fake.inode == 0 ||
        status.st_ino != fake.inode) {
        return __real_ioctl(fd, request, argument);
    }
    const std::uint64_t flags = static_cast<dma_buf_sync*>(argument)->flags;
    errno = (flags & ~std::uint64_t{DMA_BUF_SYNC_VALID_FLAGS_MASK}) != 0
                ? EINVAL
                : std::exchange(fake.interruption, 0);
    if (errno != EINVAL) {
        fake.calls.push_back(flags);
    }
    return errno == 0 ? 0 : -1;
}

namespace softverbs::fabric::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr std::size_t page = 4096;

/// Returns a memfd of two pages with the bytes 0, 1, 2, and so on.
UniqueFd make_file(int seals) {
    UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    std::array<std::uint8_t, 2 * page> bytes{};
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    if (::write(file.get(), bytes.data(), bytes.size()) != ssize_t{bytes.size()} ||
        ::fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
        throw std::system_error(errno, std::system_category(), "memfd");
    }
    return file;
}

std::uint64_t address_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

class PullTest : public ::testing::Test {
  protected:
    PullTest() { fake = {}; }

    /// Shares @p file from a to b. Returns the result.
    int share(std::uint32_t id, const UniqueFd& file, std::size_t length = 2 * page) {
        if (const int error = pair.there->share(id, file.get(), length)) {
            return -error;
        }
        const std::size_t before = pair.a.seen.shared.size();
        if (!pair.turn_until([&] { return pair.a.seen.shared.size() > before; }) ||
            pair.a.seen.shared.back().first != id) {
            return -1;
        }
        return pair.a.seen.shared.back().second;
    }

    NodeDirectory directory;
    Connected pair{directory.options()};
    std::array<std::byte, 16> into{};
};

TEST_F(PullTest, ReadsPrivateMemory) {
    ASSERT_EQ(pair.there->pull_method(), PullMethod::process_vm);
    ASSERT_EQ(pair.back->pull_method(), PullMethod::process_vm);
    const std::array<char, 16> from{"private memory."};
    ASSERT_EQ(pair.back->pull(address_of(from.data()), 0, into), 0);
    EXPECT_EQ(text_of(into), std::string(from.data(), from.size()));
}

TEST_F(PullTest, SaysThatThereIsNoSuchPrivateMemory) {
    EXPECT_EQ(pair.back->pull(page, 0, into), EFAULT);
    EXPECT_EQ(pair.back->pull(~std::uint64_t{0} - 8, 0, into), EFAULT);
    // Only the first page is mapped.
    auto* const pages = static_cast<std::byte*>(
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(::munmap(pages + page, page), 0);
    EXPECT_EQ(pair.back->pull(address_of(pages + page - 8), 0, into), EFAULT);
    EXPECT_EQ(pair.back->pull(address_of(pages + page - 16), 0, into), 0);
    ::munmap(pages, page);
}

TEST_F(PullTest, ReadsWhatWasShared) {
    const UniqueFd file = make_file(F_SEAL_SHRINK);
    const off_t position = ::lseek(file.get(), 7, SEEK_SET);
    ASSERT_EQ(share(5, file), 0);
    EXPECT_EQ(::lseek(file.get(), 0, SEEK_CUR), position) << "the file is the sharer's, too";
    ASSERT_EQ(pair.back->pull(page + 3, 5, into), 0);
    EXPECT_EQ(into[0], std::byte{3});
    EXPECT_EQ(into[15], std::byte{18});
}

TEST_F(PullTest, DoesNotPermitTheOtherProcessToWriteToWhatWasShared) {
    ASSERT_EQ(share(5, make_file(F_SEAL_SHRINK)), 0);
    std::ifstream maps("/proc/self/maps");
    std::string line;
    std::uint64_t begin = 0;
    while (begin == 0 && std::getline(maps, line)) {
        if (line.find("/memfd:test") != std::string::npos) {
            begin = std::stoull(line, nullptr, 16);
        }
    }
    ASSERT_NE(begin, 0U);
    EXPECT_EQ(::mprotect(reinterpret_cast<void*>(begin), page, PROT_READ | PROT_WRITE), -1);
    EXPECT_EQ(errno, EACCES);
}

TEST_F(PullTest, KeepsToTheBoundsOfWhatWasShared) {
    const UniqueFd file = make_file(F_SEAL_SHRINK);
    ASSERT_EQ(share(5, file, page + 100), 0);
    EXPECT_EQ(pair.back->pull(page + 84, 5, into), 0);
    EXPECT_EQ(pair.back->pull(page + 85, 5, into), EINVAL);
    EXPECT_EQ(pair.back->pull(page + 101, 5, std::span(into).first(0)), EINVAL);
    EXPECT_EQ(pair.back->pull(~std::uint64_t{0} - 7, 5, into), EINVAL);
    EXPECT_EQ(pair.back->pull(0, 6, into), EINVAL) << "there is no such share";
    EXPECT_EQ(pair.there->pull(0, 5, into), EINVAL) << "it is shared the other way only";
}

TEST_F(PullTest, ForgetsWhatIsNotSharedAnyMore) {
    const UniqueFd file = make_file(F_SEAL_SHRINK);
    ASSERT_EQ(share(5, file), 0);
    pair.there->unshare(5);
    ASSERT_TRUE(pair.turn_until([&] { return pair.back->pull(0, 5, into) == EINVAL; }));
    EXPECT_EQ(share(5, file), 0) << "the number can be used again";
}

TEST_F(PullTest, RefusesAFileThatCouldShrink) {
    EXPECT_EQ(share(5, make_file(0)), EACCES);
    EXPECT_EQ(share(6, make_file(F_SEAL_GROW)), EACCES);
    EXPECT_EQ(share(7, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))), EACCES);
    EXPECT_EQ(pair.back->pull(0, 5, into), EINVAL);
}

TEST_F(PullTest, RefusesAFileThatIsTooShort) {
    EXPECT_EQ(share(5, make_file(F_SEAL_SHRINK), 2 * page + 1), EINVAL);
}

TEST_F(PullTest, RefusesImpossibleOffers) {
    const UniqueFd file = make_file(F_SEAL_SHRINK);
    EXPECT_EQ(pair.there->share(0, file.get(), page), EINVAL);
    EXPECT_EQ(pair.there->share(5, file.get(), 0), EINVAL);
    EXPECT_EQ(pair.there->share(5, -1, page), EBADF);
    const int closed = ::dup(file.get());
    ::close(closed);
    EXPECT_EQ(pair.there->share(5, closed, page), EBADF);
    EXPECT_EQ(share(5, file), 0);
}

TEST_F(PullTest, OffersBothWaysAtOnce) {
    const UniqueFd file = make_file(F_SEAL_SHRINK);
    for (std::uint32_t id = 1; id <= 100; ++id) {
        ASSERT_EQ(pair.there->share(id, file.get(), page), 0);
        ASSERT_EQ(pair.back->share(id, file.get(), page), 0);
    }
    EXPECT_EQ(pair.there->share(100, file.get(), page), EEXIST);
    ASSERT_TRUE(pair.turn_until(
        [&] { return pair.a.seen.shared.size() + pair.b.seen.shared.size() == 200; }));
    for (std::uint32_t id = 1; id <= 100; ++id) {
        EXPECT_THAT(pair.a.seen.shared[id - 1], Pair(id, 0));
        EXPECT_THAT(pair.b.seen.shared[id - 1], Pair(id, 0));
    }
}

TEST_F(PullTest, QueuesWhatTheSocketDoesNotTakeAndRefusesMore) {
    const UniqueFd file = make_file(F_SEAL_SHRINK);
    const std::size_t before = open_descriptors();
    std::uint32_t offers = 0;
    int error = 0;
    while ((error = pair.there->share(offers + 1, file.get(), page)) == 0) {
        ASSERT_LT(++offers, 100000U);
    }
    EXPECT_EQ(error, EAGAIN);
    EXPECT_EQ(open_descriptors(), before + 256) << "those that wait";
    // An unshare message is sent even if the queue is full.
    pair.there->unshare(1);
    ASSERT_TRUE(pair.turn_until([&] { return pair.a.seen.shared.size() == offers - 1; }));
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(pair.back->pull(0, offers, into), 0);
    EXPECT_TRUE(pair.turn_until([&] { return pair.back->pull(0, 1, into) == EINVAL; }));
    ASSERT_TRUE(pair.b.node->arm());
    EXPECT_EQ(send(*pair.there, Lane::requests, "still there"), Sent::sent);
}

TEST_F(PullTest, BracketsTheReadingOfADmaBuf) {
    const UniqueFd file = make_file(0);
    struct stat status {};
    ASSERT_EQ(::fstat(file.get(), &status), 0);
    fake.inode = status.st_ino;
    ASSERT_EQ(share(5, file), 0);
    EXPECT_THAT(fake.calls, ElementsAre());
    fake.interruption = EINTR;
    ASSERT_EQ(pair.back->pull(1, 5, into), 0);
    EXPECT_EQ(into[0], std::byte{1});
    constexpr std::uint64_t start = DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ;
    EXPECT_THAT(fake.calls, ElementsAre(start, start, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ));
    fake.interruption = EIO;
    EXPECT_EQ(pair.back->pull(1, 5, into), EIO);
}

TEST_F(PullTest, TellsWhatWasWithdrawnFromWhatStands) {
    const std::uint32_t requests = pair.there->offer(Lane::requests);
    const std::uint32_t responses = pair.there->offer(Lane::responses);
    EXPECT_TRUE(pair.back->stands(Lane::requests, requests));
    pair.there->withdraw(Lane::requests);
    EXPECT_FALSE(pair.back->stands(Lane::requests, requests));
    EXPECT_TRUE(pair.back->stands(Lane::requests, pair.there->offer(Lane::requests)));
    EXPECT_TRUE(pair.back->stands(Lane::responses, responses)) << "the other lane";
    EXPECT_TRUE(pair.there->stands(Lane::requests, pair.back->offer(Lane::requests)))
        << "the other way";
}

TEST_F(PullTest, SaysThatTheOtherProcessIsGone) {
    const UniqueFd file = make_file(F_SEAL_SHRINK);
    const std::array<char, 16> from{"private memory."};
    pair.a.node.reset();
    // The node checks at most once per millisecond whether the other process is alive.
    EXPECT_TRUE(
        turn_until({}, [&] { return pair.back->pull(address_of(from.data()), 0, into) == ESRCH; }));
    pair.b.node->service(pair.b.seen);
    EXPECT_EQ(pair.b.seen.gone, 1U);
}

TEST(PullMethodTest, CanBeForbidden) {
    const NodeDirectory directory;
    const Environment none("SOFTVERBS_PULL", "none");
    Connected pair(directory.options());
    EXPECT_EQ(pair.there->pull_method(), PullMethod::none);
    EXPECT_EQ(pair.back->pull_method(), PullMethod::none);
    std::array<std::byte, 4> into{};
    EXPECT_EQ(pair.there->pull(address_of(&pair), 0, into), EPERM);
    EXPECT_EQ(pair.back->pull(address_of(&pair), 0, into), EPERM);
}

TEST(PullMethodTest, ForbiddenByOneSideIsForbiddenForBoth) {
    const NodeDirectory directory;
    Peer willing(directory.options());
    const Environment none("SOFTVERBS_PULL", "none");
    Peer unwilling(directory.options());
    Connection* const there = willing.node->connect(unwilling.node->slot());
    ASSERT_NE(there, nullptr);
    ASSERT_EQ(send(*there, Lane::requests, "hello"), Sent::sent);
    ASSERT_TRUE(turn_until({&willing, &unwilling}, [&] {
        return there->pull_method() != PullMethod::unknown && unwilling.seen.from != nullptr;
    }));
    EXPECT_EQ(there->pull_method(), PullMethod::none);
    EXPECT_EQ(unwilling.seen.from->pull_method(), PullMethod::none);
}

TEST(PullMethodTest, MustBeOneThatThereIs) {
    const NodeDirectory directory;
    const Environment wrong("SOFTVERBS_PULL", "telepathy");
    try {
        static_cast<void>(std::make_unique<Node>(directory.options()));
        FAIL() << "opened";
    } catch (const std::system_error& error) {
        EXPECT_EQ(error.code().value(), EINVAL);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("telepathy"));
    }
    EXPECT_THAT(directory.names(), ::testing::IsEmpty());
}

} // namespace
} // namespace softverbs::fabric::testing
