// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace softverbs::fabric::testing {
namespace {

using ::testing::ElementsAre;

/// Returns the number of mappings of shared memory of connections.
std::size_t mapped_links() {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find("memfd:softverbs") != std::string::npos ? 1 : 0;
    }
    return count;
}

/// While it exists, this process cannot open further descriptors.
class NoDescriptors {
  public:
    NoDescriptors() {
        while (true) {
            UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
            if (!fd) {
                break;
            }
            taken_.push_back(std::move(fd));
            // A lower limit makes it unnecessary to open all other descriptors.
            if (taken_.size() == 1) {
                ::getrlimit(RLIMIT_NOFILE, &old_);
                rlimit low = old_;
                low.rlim_cur = open_descriptors() + 16;
                ::setrlimit(RLIMIT_NOFILE, &low);
            }
        }
    }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;
    ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &old_); }

    /// Closes @p count descriptors, so that as many can be opened.
    void give(std::size_t count) { taken_.resize(taken_.size() - count); }

  private:
    std::vector<UniqueFd> taken_;
    rlimit old_{};
};

class ProcessTest : public ::testing::Test {
  protected:
    NodeDirectory directory;
};

/// Sends numbered records of different lengths to the process in a slot. Sends no responses.
int flood(const NodeOptions& options, unsigned slot) {
    Peer peer(options);
    Connection* const there = peer.node->connect(slot);
    if (there == nullptr) {
        return 1;
    }
    for (unsigned number = 0; peer.seen.gone == 0; ++number) {
        const std::string record = std::to_string(number) + std::string(number * 7 % 500, '.');
        while (send(*there, Lane::requests, record) == Sent::full) {
            peer.turn();
        }
        if (number % 64 == 0) {
            peer.turn();
        }
    }
    return 0;
}

TEST_F(ProcessTest, RecordsOfAnotherProcessComeInOrder) {
    Peer peer(directory.options());
    const Child child([&] {
        peer.node->abandon();
        return flood(directory.options(), peer.node->slot());
    });
    ASSERT_TRUE(turn_until({&peer}, [&] { return peer.seen.requests.size() >= 20000; }));
    for (unsigned number = 0; number < 20000; ++number) {
        ASSERT_EQ(peer.seen.requests[number],
                  std::to_string(number) + std::string(number * 7 % 500, '.'));
    }
}

TEST_F(ProcessTest, AProcessThatIsKilledIsNoticedAndLeavesNothing) {
    std::mt19937 random;
    Peer peer(directory.options());
    const std::size_t descriptors = open_descriptors();
    for (unsigned round = 0; round < 50; ++round) {
        peer.seen.gone = 0;
        peer.seen.requests.clear();
        Child child([&] {
            peer.node->abandon();
            return flood(directory.options(), peer.node->slot());
        });
        for (auto turns = random() % 5000; turns > 0; --turns) {
            peer.turn();
        }
        child.kill();
        // When the child is killed, its connection may be accepted, pending, or not yet requested.
        peer.turn();
        ASSERT_TRUE(turn_until({&peer}, [&] { return open_descriptors() == descriptors; }))
            << round;
        ASSERT_EQ(mapped_links(), 0U) << round;
        for (unsigned number = 0; number < peer.seen.requests.size(); ++number) {
            ASSERT_EQ(peer.seen.requests[number],
                      std::to_string(number) + std::string(number * 7 % 500, '.'));
        }
    }
    const auto next = std::make_unique<Node>(directory.options());
    EXPECT_EQ(directory.names().size(), 4U) << "of the two nodes there are";
}

TEST_F(ProcessTest, TheOneThatConnectedNoticesAsWell) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const UniqueFd read_end(ready[0]);
    const UniqueFd write_end(ready[1]);
    Child child([&] {
        Peer peer(directory.options());
        const unsigned slot = peer.node->slot();
        if (::write(ready[1], &slot, sizeof slot) == sizeof slot) {
            while (true) {
                peer.turn();
            }
        }
        return 0;
    });
    unsigned slot = 0;
    ASSERT_EQ(::read(ready[0], &slot, sizeof slot), ssize_t{sizeof slot});
    Peer peer(directory.options());
    Connection* const there = peer.node->connect(slot);
    ASSERT_NE(there, nullptr);
    ASSERT_TRUE(
        turn_until({&peer}, [&] { return there->pull_method() == PullMethod::process_vm; }));
    ASSERT_TRUE(peer.node->arm());
    child.kill();
    peer.node->wait(time_limit_ns);
    peer.node->service(peer.seen);
    EXPECT_EQ(peer.seen.gone, 1U);
    errno = 0;
    EXPECT_EQ(peer.node->connect(slot), nullptr);
    EXPECT_EQ(errno, ENOENT) << "its socket has a name still, but nobody listens";
}

TEST_F(ProcessTest, AForkedChildLeavesTheParentsNodeAlone) {
    Connected pair(directory.options());
    const std::vector<std::string> names = directory.names();
    const std::size_t descriptors = open_descriptors();
    Child child([&] {
        pair.a.node->abandon();
        pair.b.node->abandon();
        // Each node has seven descriptors, and each end of the connection has three.
        const bool closed = open_descriptors() == descriptors - 20 && mapped_links() == 0;
        pair.a.node->wake();
        pair.a.node->wait(0);
        pair.a.turn();
        pair.a.node.reset();
        pair.b.node.reset();
        return closed ? 0 : 1;
    });
    EXPECT_EQ(child.join(), 0);
    EXPECT_EQ(directory.names(), names);
    ASSERT_EQ(send(*pair.there, Lane::requests, "undisturbed"), Sent::sent);
    ASSERT_EQ(pair.a.node->connect(pair.b.node->slot()), pair.there);
    pair.a.turn();
    pair.b.turn();
    EXPECT_THAT(pair.b.seen.requests, ElementsAre("undisturbed"));
    EXPECT_EQ(pair.a.seen.gone + pair.b.seen.gone, 0U);
    ASSERT_TRUE(pair.b.node->arm());
    pair.a.node.reset();
    pair.b.node->wait(time_limit_ns);
    pair.b.turn();
    EXPECT_EQ(pair.b.seen.gone, 1U);
}

TEST_F(ProcessTest, ADestructorInAForkedChildLeavesTheParentsNodeAlone) {
    Connected pair(directory.options());
    const std::vector<std::string> names = directory.names();
    Child child([&] {
        pair.a.node.reset();
        pair.b.node.reset();
        return 0;
    });
    EXPECT_EQ(child.join(), 0);
    EXPECT_EQ(directory.names(), names);
    pair.a.turn();
    pair.b.turn();
    EXPECT_EQ(pair.a.seen.gone + pair.b.seen.gone, 0U);
    EXPECT_EQ(send(*pair.there, Lane::requests, "undisturbed"), Sent::sent);
}

TEST_F(ProcessTest, AnEndIsNoticedAlthoughAForkedChildHasTheSocketsStill) {
    Connected pair(directory.options());
    const Child child([] { return ::pause(); });
    pair.a.node.reset();
    pair.b.turn();
    EXPECT_EQ(pair.b.seen.gone, 1U);
    ASSERT_TRUE(pair.b.node->arm());
    EXPECT_TRUE(lasts_at_least(std::chrono::milliseconds(20), [&] {
        pair.b.node->wait(20'000'000);
    })) << "events of a socket that was closed";
}

TEST_F(ProcessTest, WithoutDescriptorsNothingOpensAndNothingIsLost) {
    Peer peer(directory.options());
    Peer other(directory.options());
    const std::size_t before = open_descriptors();
    std::vector<std::exception_ptr> errors;
    {
        NoDescriptors none;
        for (std::size_t free = 0; free < 7; ++free) {
            if (free < 2) {
                errno = 0;
                EXPECT_EQ(peer.node->connect(other.node->slot()), nullptr) << free;
                EXPECT_EQ(errno, EMFILE) << free;
            }
            try {
                static_cast<void>(std::make_unique<Node>(directory.options()));
            } catch (...) {
                // Examine the exceptions later, because UndefinedBehaviorSanitizer needs
                // descriptors for this.
                errors.push_back(std::current_exception());
            }
            none.give(1);
        }
    }
    EXPECT_EQ(errors.size(), 7U);
    for (const std::exception_ptr& each : errors) {
        try {
            std::rethrow_exception(each);
        } catch (const std::system_error& error) {
            EXPECT_EQ(error.code().value(), EMFILE);
        }
    }
    other.turn();
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(mapped_links(), 0U);
    EXPECT_EQ(directory.names().size(), 4U);
    EXPECT_NE(peer.node->connect(other.node->slot()), nullptr);
}

TEST_F(ProcessTest, WhoCannotBeAcceptedForWantOfDescriptorsIsToldSo) {
    Peer busy(directory.options());
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const UniqueFd read_end(ready[0]);
    const UniqueFd write_end(ready[1]);
    Child child([&] {
        busy.node->abandon();
        Peer peer(directory.options());
        const bool connected = peer.node->connect(busy.node->slot()) != nullptr;
        if (!connected || ::write(ready[1], "c", 1) != 1) {
            return 1;
        }
        return turn_until({&peer}, [&] { return peer.seen.gone == 1; }) ? 0 : 2;
    });
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    {
        const NoDescriptors none;
        busy.turn();
        ASSERT_TRUE(busy.node->arm());
        EXPECT_TRUE(lasts_at_least(std::chrono::milliseconds(20), [&] {
            busy.node->wait(20'000'000);
        })) << "nobody waits at the door any more";
    }
    EXPECT_EQ(child.join(), 0);
}

TEST_F(ProcessTest, AShareThatFindsNoDescriptorIsAnsweredSo) {
    Connected pair(directory.options());
    const UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
    ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    {
        const NoDescriptors none;
        ASSERT_EQ(pair.there->share(1, file.get(), 4096), 0);
        ASSERT_TRUE(pair.turn_until([&] { return !pair.a.seen.shared.empty(); }));
    }
    EXPECT_THAT(pair.a.seen.shared, ElementsAre(std::pair<std::uint32_t, int>(1, EMFILE)));
    EXPECT_EQ(pair.a.seen.gone + pair.b.seen.gone, 0U);
}

TEST_F(ProcessTest, AWelcomeThatFindsNoDescriptorLeavesAConnectionThatWorks) {
    Peer a(directory.options());
    Peer b(directory.options());
    Connection* const there = a.node->connect(b.node->slot());
    ASSERT_NE(there, nullptr);
    b.turn();
    {
        const NoDescriptors none;
        a.turn();
    }
    ASSERT_TRUE(b.node->arm());
    ASSERT_EQ(send(*there, Lane::requests, "poke"), Sent::sent);
    b.node->wait(time_limit_ns);
    b.turn();
    EXPECT_THAT(b.seen.requests, ElementsAre("poke"));
}

} // namespace
} // namespace softverbs::fabric::testing
