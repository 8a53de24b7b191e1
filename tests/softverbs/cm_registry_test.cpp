// SPDX-License-Identifier: BSD-3-Clause
// The file in which processes of one machine register the ports that they have bound.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "checked_calls.hpp"
#include "child_process.hpp"
#include "cm_fixture.hpp"
#include "sanitizers.hpp"
#include "temporary_directory.hpp"

namespace softverbs_test {
namespace {

constexpr std::uint16_t port = 7190;

/// Runs @p body in a child process and returns its exit status, or -1 if a signal ended it.
int run_in_child(const std::function<int()>& body) {
    const int status = status_of_child(fork_child(2 * time_limit, body));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Returns 0 if a new process can bind the port; otherwise, the errno.
int error_of_bind_in_child() {
    return run_in_child([] {
        const Channel channel;
        const UniqueId id = channel.make_id();
        return bind_error(id.get(), "127.0.0.1", port);
    });
}

/// A process that has bound the port, until the object is destroyed.
class Owner {
  public:
    Owner() {
        process_ = fork_child(2 * time_limit, [this] {
            ::close(sockets_[0]);
            const Channel channel;
            const UniqueId id = channel.make_id();
            const int error = bind_error(id.get(), "127.0.0.1", port);
            Conversation(sockets_[1]).tell(error == 0);
            char byte = 0;
            static_cast<void>(::recv(sockets_[1], &byte, 1, 0)); // until the test closes its end
            return error;
        });
        ::close(sockets_[1]);
        EXPECT_TRUE(Conversation(sockets_[0]).hear<bool>()) << "the port cannot be bound";
    }
    ~Owner() {
        ::close(sockets_[0]);
        expect_success(process_);
    }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;

  private:
    std::array<int, 2> sockets_ = connected_sockets(time_limit);
    pid_t process_ = 0;
};

class CmRegistry : public testing::Test {
  protected:
    void SetUp() override {
        ::setenv("SOFTVERBS_DIR", directory_.c_str(), 1); // NOLINT(concurrency-mt-unsafe)
    }

  private:
    TemporaryDirectory temporary_;

  protected:
    const std::filesystem::path directory_ = temporary_.path();
};

TEST_F(CmRegistry, SurvivesAProcessThatExitsAtItsLimitOfDescriptors) {
    if (softverbs_test::address_sanitizer) {
        GTEST_SKIP() << "LeakSanitizer needs a descriptor at exit";
    }
    const Owner owner;
    ASSERT_EQ(run_in_child([] {
                  static const Channel* const channel = new Channel;
                  const rlimit few{64, 64};
                  if (channel->native() == nullptr || ::setrlimit(RLIMIT_NOFILE, &few) != 0) {
                      return 1;
                  }
                  while (::open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
                  }
                  return 0;
              }),
              0);
    EXPECT_EQ(error_of_bind_in_child(), EADDRINUSE);
}

TEST_F(CmRegistry, SurvivesAProcessThatHasChangedItsDirectory) {
    ASSERT_EQ(::chdir(directory_.c_str()), 0);
    ::setenv("SOFTVERBS_DIR", "relative", 1); // NOLINT(concurrency-mt-unsafe)
    {
        const Owner owner;
        ASSERT_EQ(run_in_child([] {
                      static const Channel* const channel = new Channel;
                      return channel->native() != nullptr && ::chdir("/") == 0 ? 0 : 1;
                  }),
                  0);
        EXPECT_EQ(error_of_bind_in_child(), EADDRINUSE);
    }
    ASSERT_EQ(::chdir("/"), 0);
}

TEST_F(CmRegistry, InAFullDirectoryIsRefusedWithALine) {
    const std::filesystem::path errors = directory_ / "errors";
    const std::ofstream created(errors);
    const std::filesystem::path full = directory_ / "full";
    ASSERT_TRUE(std::filesystem::create_directory(full));
    constexpr int no_mount = 77;
    const int status = run_in_child([&] {
        const int log = ::open(errors.c_str(), O_WRONLY | O_CLOEXEC);
        if (::unshare(CLONE_NEWNS) != 0 ||
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("none", full.c_str(), "tmpfs", 0, "size=64k,mode=700") != 0) {
            return no_mount;
        }
        ::dup2(log, STDERR_FILENO);
        ::setenv("SOFTVERBS_DIR", full.c_str(), 1); // NOLINT(concurrency-mt-unsafe)
        errno = 0;
        return rdma_create_event_channel() == nullptr ? errno : 0;
    });
    if (status == no_mount) {
        GTEST_SKIP() << "this user cannot mount a small tmpfs";
    }
    EXPECT_EQ(status, ENOSPC);
    std::ifstream file(errors);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(text.find("KiB; free space there, or set SOFTVERBS_DIR"), std::string::npos) << text;
}

TEST_F(CmRegistry, OfAnotherSizeIsReplacedAndNotTruncated) {
    // The name of the file contains the version of its format.
    std::string name;
    {
        const Owner owner;
        for (const auto& entry : std::filesystem::directory_iterator(directory_ / "cm")) {
            const std::string found = entry.path().filename();
            name = found.starts_with("ports") ? found : name;
        }
    }
    ASSERT_FALSE(name.empty());
    std::filesystem::create_directories(directory_ / "cm");
    std::filesystem::permissions(directory_ / "cm", std::filesystem::perms::owner_all);
    const std::string path = directory_ / "cm" / name;
    constexpr off_t other_size = 12288;
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::ftruncate(file, other_size), 0);
    {
        const Owner owner;
        EXPECT_EQ(error_of_bind_in_child(), EADDRINUSE);
        struct stat status {};
        ASSERT_EQ(::fstat(file, &status), 0);
        EXPECT_EQ(status.st_size, other_size);
        EXPECT_EQ(status.st_nlink, 0U);
    }
    EXPECT_EQ(::close(file), 0);
}

} // namespace
} // namespace softverbs_test
