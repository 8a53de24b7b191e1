// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checked_calls.hpp"
#include "child_process.hpp"
#include "command.hpp"
#include "pair_test.hpp"
#include "temporary_directory.hpp"

namespace {

using namespace softverbs_test;
using rdmabuf::testing::eventually;
using rdmabuf::testing::is_asleep;
using rdmabuf::testing::state_of_thread;
using testing::HasSubstr;

/// Runs the softverbs command with this process as its target. The process has two queue pairs.
class ControlTest : public PairTest {
  protected:
    void SetUp() override {
        PairTest::SetUp();
        start();
    }
    void TearDown() override {
        softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE);
        PairTest::TearDown();
    }

    /// Runs a subcommand for this process, without LD_PRELOAD.
    static CommandResult softverbs(const std::string& command, const std::string& arguments) {
        return run_command(std::string(SOFTVERBS_COMMAND) + " " + command + " --dir " +
                           softverbs_directory() + " --pid " + std::to_string(::getpid()) + " " +
                           arguments);
    }
    std::vector<ibv_event_type> take_events(std::size_t count) const {
        std::vector<ibv_event_type> types;
        while (types.size() < count) {
            if (!becomes_readable(context->async_fd)) {
                break;
            }
            types.push_back(next_event()->event_type);
        }
        return types;
    }
};

TEST_F(ControlTest, InjectsAFaultIntoARunningProcess) {
    const CommandResult result = softverbs("fault", "reg_mr#2=ENOMEM");
    EXPECT_EQ(result.output, "");
    ASSERT_EQ(result.exit_status, 0);
    EXPECT_EQ(softverbs_pending_faults(), 1U);
    const UniqueMr first(ibv_reg_mr(pd.get(), a.memory.data(), 64, 0));
    EXPECT_NE(first, nullptr);
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(pd.get(), a.memory.data(), 64, 0), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST_F(ControlTest, TakesAPortDownAndUp) {
    ASSERT_EQ(softverbs("port", "down").exit_status, 0);
    EXPECT_EQ(take_events(1), std::vector{IBV_EVENT_PORT_ERR});
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_DOWN);
    ASSERT_EQ(softverbs("port", "--device 0 --port 1 up").exit_status, 0);
    EXPECT_EQ(take_events(1), std::vector{IBV_EVENT_PORT_ACTIVE});
}

TEST_F(ControlTest, FlapsAPortWithItsEvents) {
    const ManualClock clock;
    ASSERT_EQ(softverbs("port", "'flap:20ms*3'").exit_status, 0);
    EXPECT_EQ(take_events(6),
              (std::vector{IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
                           IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}));
}

TEST_F(ControlTest, ResetsADevice) {
    ASSERT_EQ(softverbs("reset-device", "").exit_status, 0);
    EXPECT_EQ(take_events(1), std::vector{IBV_EVENT_DEVICE_FATAL});
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(pd.get(), a.memory.data(), 64, 0), nullptr);
    EXPECT_EQ(errno, EIO);
}

TEST_F(ControlTest, FaultsOfAListOccurAfterTheirDelay) {
    const ManualClock clock;
    const auto begin = ManualClock::now();
    ASSERT_EQ(softverbs_set_faults("port:0/1=down@100ms"), 0);
    EXPECT_EQ(take_events(1), std::vector{IBV_EVENT_PORT_ERR});
    EXPECT_EQ(ManualClock::now() - begin, std::chrono::milliseconds(100));
}

TEST_F(ControlTest, ANewListCancelsTheFaultsOfTheOldOne) {
    const ManualClock clock;
    ASSERT_EQ(softverbs_set_faults("port=down@20ms,device=reset@10ms"), 0);
    ASSERT_EQ(softverbs_set_faults("port=down@10ms"), 0);
    ManualClock::advance(std::chrono::milliseconds(9));
    softverbs_clear_faults();
    ManualClock::advance(std::chrono::hours(1));
    EXPECT_FALSE(next_event());
}

TEST_F(ControlTest, AFlapOfTheCommandPortContinuesWhenTheListIsReplaced) {
    const ManualClock clock;
    ASSERT_EQ(softverbs_flap_port(0, 1, 30, 1), 0);
    ASSERT_EQ(softverbs_set_faults(""), 0);
    EXPECT_EQ(take_events(2), (std::vector{IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}));
}

TEST_F(ControlTest, SlowsThePacketsOfAProcessDown) {
    restart([](ibv_qp_attr& attr) { attr.timeout = 0; });
    ASSERT_EQ(softverbs("fault", "slow:40ms").exit_status, 0);
    const ManualClock clock;
    const auto begin = ManualClock::now();
    ASSERT_EQ(post(a, {a, b, IBV_WR_RDMA_WRITE, 1, 8}), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    // The request and its acknowledgement have a delay of 40 ms each.
    EXPECT_EQ(ManualClock::now() - begin, std::chrono::milliseconds(80));
}

TEST_F(ControlTest, SaysWhatIsWrongWithACommand) {
    EXPECT_THAT(softverbs("fault", "reg_mr=NONSENSE").output, HasSubstr("is not a list such as"));
    EXPECT_THAT(softverbs("fault", "port:3=down").output, HasSubstr("No such device"));
    EXPECT_THAT(softverbs("port", "sideways").output, HasSubstr("up, down or flap"));
    EXPECT_THAT(softverbs("port", "--device 7 down").output, HasSubstr("No such device"));
    EXPECT_THAT(softverbs("reset-device", "--device 9").output, HasSubstr("No such device"));
    EXPECT_EQ(softverbs("port", "--port 9 down").exit_status, 1);
}

/// Starts a process with this SOFTVERBS_DIR, which then changes to another directory. Returns the
/// result of a command that is sent to it by the absolute path of the directory.
CommandResult command_result(const std::string& directory, const std::string& absolute) {
    const std::array<int, 2> sockets = connected_sockets(time_limit);
    const pid_t child = fork_child(2 * time_limit, [&] {
        ::setenv("SOFTVERBS_DIR", directory.c_str(), 1); // NOLINT(concurrency-mt-unsafe)
        const bool started = softverbs_flap_port(0, 1, 60'000, 1) == 0 && ::chdir("/") == 0;
        const Conversation test(sockets[1]);
        test.tell(started);
        static_cast<void>(test.hear<char>());
        return started ? 0 : 1;
    });
    const Conversation process(sockets[0]);
    EXPECT_TRUE(process.hear<bool>());
    CommandResult result = run_command(std::string(SOFTVERBS_COMMAND) + " fault --dir " + absolute +
                                       " --pid " + std::to_string(child) + " reg_mr=ENOMEM");
    process.tell('e');
    expect_success(child);
    for (const int socket : sockets) {
        ::close(socket);
    }
    return result;
}

TEST(ControlCommand, ReachesAProcessWhoseDirectoryHasARelativePath) {
    const TemporaryDirectory directory;
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(directory.path());
    const CommandResult result = command_result("relative", directory.path() + "/relative");
    std::filesystem::current_path(before);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(result.exit_status, 0);
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(directory.path() + "/relative", error)) {
        EXPECT_NE(entry.path().extension(), ".control") << "the socket was not removed";
    }
}

TEST(ControlCommand, ReachesAProcessWhoseDirectoryHasALongPath) {
    const TemporaryDirectory directory;
    const std::string path = directory.path() + "/" + std::string(120, 'd');
    const CommandResult result = command_result(path, path);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(result.exit_status, 0);
}

/// The control socket of a process that does not exist. The test replies in its place.
class ControlSocket {
  public:
    ControlSocket() {
        address_.sun_family = AF_UNIX;
        EXPECT_LT(path_.size(), sizeof address_.sun_path);
        std::memcpy(address_.sun_path, path_.c_str(), path_.size() + 1);
        ::unlink(path_.c_str());
        EXPECT_EQ(::bind(listener, name(), sizeof address_), 0);
        EXPECT_EQ(::listen(listener, 1), 0);
    }
    ~ControlSocket() {
        ::close(listener);
        ::unlink(path_.c_str());
    }
    ControlSocket(const ControlSocket&) = delete;
    ControlSocket& operator=(const ControlSocket&) = delete;

    [[nodiscard]] int connect(int socket) const {
        return ::connect(socket, name(), sizeof address_);
    }
    [[nodiscard]] CommandResult run_softverbs() const {
        return run_command(std::string(SOFTVERBS_COMMAND) + " fault --dir " + directory_.path() +
                           " --pid 4194303 reg_mr=ENOMEM");
    }

    const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

  private:
    [[nodiscard]] const sockaddr* name() const {
        return reinterpret_cast<const sockaddr*>(&address_);
    }

    TemporaryDirectory directory_; // Several tests may run at the same time.
    std::string path_ = directory_.path() + "/4194303.control";
    sockaddr_un address_{};
};

/// A socket whose listen queue is full simulates a process that is stopped.
TEST(ControlCommand, SaysThatAProcessIsStopped) {
    const ControlSocket control;
    std::vector<int> sockets;
    do {
        sockets.push_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    } while (control.connect(sockets.back()) == 0);
    ASSERT_EQ(errno, EAGAIN);
    const CommandResult result = control.run_softverbs();
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_THAT(result.output, HasSubstr("the process is stopped, or does not read its commands"));
    for (const int socket : sockets) {
        ::close(socket);
    }
}

/// With a time limit, recv(2) fails with EINTR after SIGCONT although no handler was called.
TEST(ControlCommand, MayBeStoppedWhileItWaits) {
    const ControlSocket control;
    auto result = std::async(std::launch::async, [&] { return control.run_softverbs(); });
    const int connection = ::accept4(control.listener, nullptr, nullptr, SOCK_CLOEXEC);
    std::array<char, 64> command{};
    EXPECT_GT(::recv(connection, command.data(), command.size(), 0), 0);
    ucred sender{};
    socklen_t size = sizeof sender;
    ASSERT_EQ(::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &sender, &size), 0);
    EXPECT_TRUE(eventually([&] { return is_asleep(sender.pid); }));
    ASSERT_EQ(::kill(sender.pid, SIGSTOP), 0);
    EXPECT_TRUE(eventually([&] { return state_of_thread(sender.pid) == 'T'; }));
    ASSERT_EQ(::kill(sender.pid, SIGCONT), 0);
    EXPECT_TRUE(
        eventually([&] { return is_asleep(sender.pid) || state_of_thread(sender.pid) == 0; }));
    EXPECT_EQ(::send(connection, "ok", 2, MSG_NOSIGNAL), 2);
    EXPECT_EQ(result.get().output, "");
    ::close(connection);
}

TEST_F(ControlTest, SaysThatAProcessIsNotThere) {
    const CommandResult result = run_command(std::string(SOFTVERBS_COMMAND) + " fault --dir " +
                                             softverbs_directory() + " --pid 1 slow:1ms");
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_THAT(result.output, HasSubstr("process 1 does not answer at"));
}

} // namespace
