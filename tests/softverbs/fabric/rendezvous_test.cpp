// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/rendezvous.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace softverbs::fabric::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t nobody = 65534;

/// Opens a node. Returns 0, or the errno of the exception and its text in @p text.
int failure(const NodeOptions& options, std::string& text) {
    try {
        static_cast<void>(std::make_unique<Node>(options));
        return 0;
    } catch (const std::system_error& error) {
        text = error.what();
        return error.code().value();
    }
}

class RendezvousTest : public ::testing::Test {
  protected:
    NodeDirectory directory;
    std::string text;
};

TEST_F(RendezvousTest, TheDirectoryIsMadeForItsUserAlone) {
    NodeOptions options = directory.options();
    options.directory += "/new";
    const auto node = std::make_unique<Node>(options);
    struct stat status {};
    ASSERT_EQ(::stat(options.directory.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0700U);
}

TEST_F(RendezvousTest, ADirectoryThatOthersCanEnterIsRefused) {
    for (const mode_t mode : {0750U, 0701U, 0777U}) {
        ASSERT_EQ(::chmod(directory.path().c_str(), mode), 0);
        EXPECT_EQ(failure(directory.options(), text), EACCES) << mode;
        EXPECT_THAT(text, HasSubstr("chmod 700"));
    }
    EXPECT_THAT(directory.names(), IsEmpty());
}

TEST_F(RendezvousTest, ASymbolicLinkIsRefused) {
    NodeOptions options = directory.options();
    options.directory += "/link";
    ASSERT_EQ(::symlink(".", options.directory.c_str()), 0);
    EXPECT_EQ(failure(options, text), ENOTDIR);
    EXPECT_THAT(text, HasSubstr("symbolic link"));
}

TEST_F(RendezvousTest, ADirectoryThatCannotBeMadeIsNamed) {
    NodeOptions options = directory.options();
    options.directory += "/not/there";
    EXPECT_EQ(failure(options, text), ENOENT);
    EXPECT_THAT(text, HasSubstr(options.directory));
    EXPECT_THAT(text, HasSubstr("SOFTVERBS_DIR"));
}

TEST_F(RendezvousTest, AnotherUsersDirectoryIsRefused) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can give a directory away";
    }
    ASSERT_EQ(::chown(directory.path().c_str(), nobody, nobody), 0);
    EXPECT_EQ(failure(directory.options(), text), EACCES);
    EXPECT_THAT(text, HasSubstr("65534"));
}

TEST_F(RendezvousTest, AnotherUserIsRefused) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    const auto node = std::make_unique<Node>(directory.options());
    Child other([this] {
        std::string ignored;
        return ::setuid(nobody) == 0 ? failure(directory.options(), ignored) : 0;
    });
    EXPECT_EQ(other.join(), EACCES);
}

TEST_F(RendezvousTest, AnotherUsersConnectionIsClosedEvenWhereItGetsThrough) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    Peer peer(directory.options());
    const std::string socket = directory.path() + "/" + std::to_string(peer.node->slot()) + ".sock";
    ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
    ASSERT_EQ(::chmod(socket.c_str(), 0777), 0);
    Child other([&] {
        if (::setuid(nobody) != 0) {
            return 1;
        }
        const UniqueFd connected(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        socket.copy(address.sun_path, sizeof address.sun_path - 1);
        if (::connect(connected.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) !=
            0) {
            return 2;
        }
        char byte = 0;
        return ::recv(connected.get(), &byte, 1, 0) == 0 ? 42 : 3;
    });
    int status = -1;
    std::thread waiting([&] { status = other.join(); });
    peer.node->wait(time_limit_ns);
    const std::size_t before = open_descriptors();
    peer.turn();
    waiting.join();
    EXPECT_EQ(status, 42);
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(RendezvousTest, AnotherUsersSlotIsRefused) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    Peer peer(directory.options());
    const unsigned slot = (peer.node->slot() + 1) % 64;
    ASSERT_EQ(::chmod(directory.path().c_str(), 0777), 0);
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    Child other([&] {
        const std::string path = directory.path() + "/" + std::to_string(slot) + ".sock";
        const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        if (::setuid(nobody) != 0 ||
            ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
            ::listen(listener.get(), 1) != 0 || ::write(ready[1], "r", 1) != 1) {
            return 1;
        }
        ::pause();
        return 0;
    });
    const UniqueFd write_end(ready[1]);
    const UniqueFd read_end(ready[0]);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    const std::size_t before = open_descriptors();
    errno = 0;
    EXPECT_EQ(peer.node->connect(slot), nullptr);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(RendezvousTest, EachNodeHasASlotOfItsOwnUntilThereAreNone) {
    NodeOptions options = directory.options();
    options.slots = 8;
    std::vector<std::unique_ptr<Node>> nodes;
    std::set<unsigned> slots;
    for (unsigned count = 0; count < options.slots; ++count) {
        nodes.push_back(std::make_unique<Node>(options));
        slots.insert(nodes.back()->slot());
    }
    EXPECT_EQ(slots.size(), 8U);
    EXPECT_EQ(*slots.rbegin(), 7U);
    const std::size_t before = open_descriptors();
    EXPECT_EQ(failure(options, text), ENOSPC);
    EXPECT_THAT(text, HasSubstr("all 8 slots"));
    EXPECT_EQ(open_descriptors(), before);
    const unsigned freed = nodes[3]->slot();
    nodes[3].reset();
    EXPECT_EQ(std::make_unique<Node>(options)->slot(), freed);
}

TEST_F(RendezvousTest, WhatAKilledProcessLeftIsClearedAwayByTheNextStart) {
    for (const char* const name : {"3.lock", "3.sock", "9.lock"}) {
        std::ofstream(directory.path() + "/" + name) << "left behind";
    }
    std::ofstream(directory.path() + "/notes.txt") << "not ours";
    auto node = std::make_unique<Node>(directory.options());
    const std::string slot = std::to_string(node->slot());
    EXPECT_EQ(node->rendezvous().path(), directory.path());
    EXPECT_THAT(directory.names(), ElementsAre(slot + ".lock", slot + ".sock", "notes.txt"));
    node.reset();
    EXPECT_THAT(directory.names(), ElementsAre("notes.txt"));
}

TEST_F(RendezvousTest, TheOnlySlotIsTakenOverFromAKilledProcess) {
    NodeOptions options = directory.options();
    options.slots = 1;
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const UniqueFd read_end(ready[0]);
    const UniqueFd write_end(ready[1]);
    Child child([&] {
        const auto node = std::make_unique<Node>(options);
        if (::write(ready[1], "r", 1) == 1) {
            ::pause();
        }
        return 0;
    });
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(failure(options, text), ENOSPC);
    child.kill();
    EXPECT_THAT(directory.names(), ElementsAre("0.lock", "0.sock"));
    EXPECT_EQ(std::make_unique<Node>(options)->slot(), 0U);
    EXPECT_THAT(directory.names(), IsEmpty());
}

TEST_F(RendezvousTest, SlotsStartAnywhere) {
    std::set<unsigned> slots;
    for (int round = 0; round < 64; ++round) {
        slots.insert(std::make_unique<Node>(directory.options())->slot());
    }
    EXPECT_GT(slots.size(), 8U) << "a slot is used again at once too often";
}

TEST_F(RendezvousTest, ALongPathWorks) {
    NodeOptions options = directory.options();
    options.directory += "/" + std::string(150, 'd');
    Connected pair(options);
    EXPECT_EQ(send(*pair.there, Lane::requests, "from afar"), Sent::sent);
    pair.b.turn();
    EXPECT_THAT(pair.b.seen.requests, ElementsAre("from afar"));
}

TEST_F(RendezvousTest, ARelativePathSurvivesAChangeOfDirectory) {
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(directory.path());
    NodeOptions options = directory.options();
    options.directory = "here";
    Peer a(options);
    Peer b(options);
    std::filesystem::current_path(before);
    EXPECT_NE(a.node->connect(b.node->slot()), nullptr);
}

TEST_F(RendezvousTest, TheEnvironmentSaysWhere) {
    const Environment runtime("XDG_RUNTIME_DIR", directory.path().c_str());
    {
        const Environment own("SOFTVERBS_DIR", "/somewhere");
        EXPECT_EQ(default_directory(), "/somewhere");
    }
    const Environment empty("SOFTVERBS_DIR", "");
    EXPECT_EQ(default_directory(), directory.path() + "/softverbs");
    const Environment missing("XDG_RUNTIME_DIR", "/not/there");
    EXPECT_EQ(default_directory(), "/tmp/softverbs-" + std::to_string(::geteuid()));
}

TEST_F(RendezvousTest, AnotherUsersRuntimeDirectoryIsPassedOver) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can give a directory away";
    }
    ASSERT_EQ(::chown(directory.path().c_str(), nobody, nobody), 0);
    const Environment own("SOFTVERBS_DIR", "");
    const Environment runtime("XDG_RUNTIME_DIR", directory.path().c_str());
    EXPECT_EQ(default_directory(), "/tmp/softverbs-0");
}

TEST_F(RendezvousTest, ImpossibleOptionsAreRefused) {
    NodeOptions options = directory.options();
    options.slots = 0;
    EXPECT_EQ(failure(options, text), EINVAL);
    options = directory.options();
    options.ring_bytes[1] = 5000;
    EXPECT_EQ(failure(options, text), EINVAL);
    options.ring_bytes[1] = 2048;
    EXPECT_EQ(failure(options, text), EINVAL);
    EXPECT_THAT(directory.names(), IsEmpty());
}

} // namespace
} // namespace softverbs::fabric::testing
