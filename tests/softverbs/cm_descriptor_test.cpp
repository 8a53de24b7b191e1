// SPDX-License-Identifier: BSD-3-Clause
// Descriptors of /dev/infiniband/rdma_cm, and commands that librdmacm does not write.
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <softverbs/softverbs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "manual_clock.hpp"

namespace softverbs_test {
namespace {

constexpr const char* device = "/dev/infiniband/rdma_cm";

template <class Body>
struct Command {
    rdma_ucm_cmd_hdr header{};
    Body body{};
};

/// Writes a command to the descriptor. Returns 0 or the errno.
template <class Body>
int command(int fd, std::uint32_t number, const Body& body, std::size_t output = 512) {
    Command<Body> made;
    made.header = {number, sizeof body, static_cast<std::uint16_t>(output)};
    made.body = body;
    errno = 0;
    const ssize_t written = ::write(fd, &made, sizeof made);
    return written == static_cast<ssize_t>(sizeof made) ? 0 : errno;
}

int create_id(int fd, std::uint32_t& id, std::uint16_t space = RDMA_PS_TCP) {
    rdma_ucm_create_id_resp response{};
    rdma_ucm_create_id body{};
    body.uid = 1;
    body.response = reinterpret_cast<std::uintptr_t>(&response);
    body.ps = space;
    const int error = command(fd, RDMA_USER_CM_CMD_CREATE_ID, body, sizeof response);
    id = response.id;
    return error;
}

int resolve(int fd, std::uint32_t id) {
    rdma_ucm_resolve_ip body{};
    body.dst_addr.sin6_family = AF_INET;
    // Store an IPv4 address, at its offset in struct sockaddr_in.
    const std::uint8_t loopback[4] = {127, 0, 0, 1};
    std::memcpy(reinterpret_cast<char*>(&body.dst_addr) + 4, loopback, sizeof loopback);
    body.id = id;
    return command(fd, RDMA_USER_CM_CMD_RESOLVE_IP, body);
}

int get_event(int fd, rdma_ucm_event_resp& response) {
    rdma_ucm_get_event body{};
    body.response = reinterpret_cast<std::uintptr_t>(&response);
    return command(fd, RDMA_USER_CM_CMD_GET_EVENT, body, sizeof response);
}

/// Creates an id that listens on a free port of all addresses.
int listen_anywhere(int fd, std::uint32_t& id) {
    if (const int error = create_id(fd, id); error != 0) {
        return error;
    }
    rdma_ucm_bind_ip body{};
    body.addr.sin6_family = AF_INET;
    body.id = id;
    const int error = command(fd, RDMA_USER_CM_CMD_BIND_IP, body);
    return error != 0 ? error : command(fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1});
}

/// Starts a child by vfork(2) that calls @p action with the descriptor, and waits for its end. The
/// child runs in the memory of this process, but has descriptors of its own.
void run_in_vfork_child(void (*action)(int), int fd) {
    // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): posix_spawn(3) cannot call dup2(2)
    const pid_t child = ::vfork();
    if (child == 0) {
        action(fd);
        ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
}

class CmDescriptor : public testing::Test {
  protected:
    void SetUp() override {
        fd_ = ::open(device, O_RDWR | O_CLOEXEC);
        ASSERT_GE(fd_, 0) << std::strerror(errno);
    }
    void TearDown() override { EXPECT_EQ(::close(fd_), 0); }

    int fd_ = -1;
};

TEST_F(CmDescriptor, IsOneOfACharacterDevice) {
    struct stat status {};
    ASSERT_EQ(::fstat(fd_, &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    EXPECT_EQ(::fcntl(fd_, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(::access(device, R_OK | W_OK), 0);
}

TEST_F(CmDescriptor, RefusesMalformedCommandsWithTheKernelsErrors) {
    const rdma_ucm_cmd_hdr unknown{23, 0, 0};
    EXPECT_EQ(::write(fd_, &unknown, sizeof unknown), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(::write(fd_, &unknown, 4), -1);
    EXPECT_EQ(errno, EINVAL);
    const rdma_ucm_cmd_hdr longer_than_written{RDMA_USER_CM_CMD_LISTEN, 8, 0};
    EXPECT_EQ(::write(fd_, &longer_than_written, sizeof longer_than_written), -1);
    EXPECT_EQ(errno, EINVAL);
    const rdma_ucm_cmd_hdr get_option{RDMA_USER_CM_CMD_GET_OPTION, 0, 0};
    EXPECT_EQ(::write(fd_, &get_option, sizeof get_option), -1);
    EXPECT_EQ(errno, ENOSYS);
    const void* volatile unmapped = reinterpret_cast<void*>(8);
    EXPECT_EQ(::write(fd_, unmapped, 16), -1);
    EXPECT_EQ(errno, EFAULT);

    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{77, 1}), ENOENT);
    std::uint32_t id = 0;
    EXPECT_EQ(create_id(fd_, id, 0x1234), EINVAL);
    rdma_ucm_create_id small{};
    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_CREATE_ID, small, 1), ENOSPC);
    small.ps = RDMA_PS_TCP; // and a response at address 0
    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_CREATE_ID, small, 4), EFAULT);

    ASSERT_EQ(create_id(fd_, id), 0);
    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1}), EINVAL);
    rdma_ucm_bind no_family{};
    no_family.id = id;
    no_family.addr_size = 16;
    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_BIND, no_family), EINVAL);
    rdma_ucm_set_option option{};
    option.id = id;
    option.level = 7;
    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_SET_OPTION, option), ENOSYS);
    rdma_ucm_query query{};
    query.id = id;
    query.option = 9;
    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_QUERY, query), ENOSYS);
    const int other = ::open(device, O_RDWR | O_CLOEXEC);
    EXPECT_EQ(command(other, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}), EINVAL);
    EXPECT_EQ(::close(other), 0);
}

TEST_F(CmDescriptor, IsReadableWhileEventsArePending) {
    rdma_ucm_event_resp event{};
    ASSERT_EQ(::fcntl(fd_, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(get_event(fd_, event), EAGAIN);
    EXPECT_FALSE(is_readable(fd_));
    std::uint32_t id = 0;
    ASSERT_EQ(create_id(fd_, id), 0);
    ASSERT_EQ(resolve(fd_, id), 0);
    EXPECT_TRUE(is_readable(fd_));
    rdma_ucm_get_event no_room{};
    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_GET_EVENT, no_room, 8), ENOSPC);
    EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_GET_EVENT, no_room), EFAULT);
    EXPECT_TRUE(is_readable(fd_)) << "an event that could not be copied is lost";
    EXPECT_EQ(get_event(fd_, event), 0);
    EXPECT_EQ(event.event, 0U); // RDMA_CM_EVENT_ADDR_RESOLVED
    EXPECT_EQ(event.uid, 1U);
    EXPECT_FALSE(is_readable(fd_));
}

TEST_F(CmDescriptor, CountsTheEventsThatWereReportedOfAnId) {
    std::uint32_t id = 0;
    ASSERT_EQ(create_id(fd_, id), 0);
    ASSERT_EQ(resolve(fd_, id), 0);
    rdma_ucm_event_resp event{};
    ASSERT_EQ(get_event(fd_, event), 0);
    ASSERT_EQ(command(fd_, RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1}), 0);
    EXPECT_TRUE(is_readable(fd_));
    rdma_ucm_destroy_id_resp response{};
    rdma_ucm_destroy_id body{};
    body.response = reinterpret_cast<std::uintptr_t>(&response);
    body.id = id;
    ASSERT_EQ(command(fd_, RDMA_USER_CM_CMD_DESTROY_ID, body), 0);
    EXPECT_EQ(response.events_reported, 1U);
    EXPECT_FALSE(is_readable(fd_)) << "an event of the destroyed id is still pending";
}

TEST_F(CmDescriptor, WaitsForAnEvent) {
    std::uint32_t id = 0;
    ASSERT_EQ(create_id(fd_, id), 0);
    rdma_ucm_event_resp event{};
    int error = -1;
    std::atomic<pid_t> waiter = 0;
    std::thread waiting([&] {
        waiter = ::gettid();
        error = get_event(fd_, event);
    });
    EXPECT_TRUE(eventually([&] { return is_asleep(waiter); }));
    EXPECT_EQ(resolve(fd_, id), 0);
    waiting.join();
    EXPECT_EQ(error, 0);
}

TEST_F(CmDescriptor, CanBeCancelledWhileItWaits) {
    std::atomic<pid_t> waiter = 0;
    std::thread waiting([&] {
        waiter = ::gettid();
        rdma_ucm_event_resp event{};
        static_cast<void>(get_event(fd_, event));
    });
    EXPECT_TRUE(eventually([&] { return is_asleep(waiter); }));
    EXPECT_EQ(::pthread_cancel(waiting.native_handle()), 0);
    waiting.join();
}

/// A thread receives an event and stays busy until the test ends that. Another thread closes the
/// event channel meanwhile.
class CmDescriptorInUse : public CmDescriptor {
  protected:
    void SetUp() override {
        CmDescriptor::SetUp();
        std::uint32_t id = 0;
        ASSERT_EQ(create_id(fd_, id), 0);
        ASSERT_EQ(resolve(fd_, id), 0);
        receiver_ = std::thread([this] {
            rdma_ucm_event_resp event{};
            first_ = get_event(fd_, event);
            received_ = true;
            while (busy_) {
            }
            second_ = get_event(fd_, event); // no event arrives, and no error is due
        });
        EXPECT_TRUE(eventually([this] { return received_.load(); }));
        EXPECT_EQ(first_, 0);
        closer_ = std::thread([this] {
            closer_id_ = ::gettid();
            EXPECT_EQ(::close(fd_), 0);
            closed_ = true;
        });
        EXPECT_TRUE(eventually([this] { return is_asleep(closer_id_); }));
    }
    void TearDown() override {
        busy_ = false;
        if (closer_.joinable()) {
            closer_.join();
        }
        if (receiver_.joinable()) {
            EXPECT_EQ(::pthread_cancel(receiver_.native_handle()), 0);
            receiver_.join();
        }
    }

    ManualClock clock_;
    std::atomic<bool> received_ = false, busy_ = true, closed_ = false;
    std::atomic<pid_t> closer_id_ = 0;
    std::atomic<int> first_ = -1, second_ = -1;
    std::thread receiver_, closer_;
};

TEST_F(CmDescriptorInUse, IsClosedWhenTheThreadThatReceivedAnEventWaitsForTheNextOne) {
    ManualClock::advance(std::chrono::milliseconds(99));
    EXPECT_FALSE(closed_);
    busy_ = false;
    closer_.join();
    EXPECT_EQ(second_, -1) << std::strerror(second_);
}

TEST_F(CmDescriptorInUse, IsClosedAfterATenthOfASecondIfThatThreadStaysBusy) {
    ManualClock::advance(std::chrono::milliseconds(99));
    EXPECT_FALSE(closed_);
    ManualClock::advance(std::chrono::milliseconds(1));
    EXPECT_TRUE(eventually([this] { return closed_.load(); }));
    EXPECT_TRUE(busy_);
}

TEST_F(CmDescriptor, WorksByACopyAndEndsItsIdsWithTheLastOne) {
    std::uint32_t id = 0;
    ASSERT_EQ(create_id(fd_, id), 0);
    const int copy = ::dup(fd_);
    const int second = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    ASSERT_EQ(::close(fd_), 0);
    ASSERT_EQ(resolve(copy, id), 0);
    ASSERT_EQ(::close(copy), 0);
    EXPECT_TRUE(is_readable(second));
    const int target = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(::dup2(second, target), target);
    ASSERT_EQ(::close(second), 0);
    rdma_ucm_event_resp event{};
    EXPECT_EQ(get_event(target, event), 0);
    fd_ = target;
}

TEST_F(CmDescriptor, NumberOfAnotherFileIsNoDevice) {
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    const int number = ::open(device, O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::dup2(null, number), number);
    EXPECT_EQ(::write(number, "x", 1), 1);
    EXPECT_EQ(::close(number), 0);
    EXPECT_EQ(::close(null), 0);
}

TEST_F(CmDescriptor, OfAParentIsOfNoUseToAChild) {
    std::uint32_t id = 0;
    ASSERT_EQ(create_id(fd_, id), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        std::uint32_t own = 0;
        const bool refused = create_id(fd_, own) == EBADF;
        const int opened = ::open(device, O_RDWR | O_CLOEXEC);
        const bool works = opened >= 0 && create_id(opened, own) == 0 && resolve(opened, own) == 0;
        ::close(fd_);
        ::_exit(refused && works ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(resolve(fd_, id), 0);
    EXPECT_TRUE(is_readable(fd_));
}

TEST_F(CmDescriptor, IsNotInterruptedByACancellationInACommand) {
    std::uint32_t id = 0;
    std::uint32_t handle = 0;
    int opened = -1;
    bool done = false;
    std::thread thread([&] {
        ::pthread_cancel(::pthread_self());
        opened = ::open(device, O_RDWR | O_CLOEXEC);
        EXPECT_EQ(create_id(opened, id), 0);
        EXPECT_EQ(resolve(opened, id), 0); // wakes the thread that runs the timers
        EXPECT_EQ(listen_anywhere(opened, handle), 0);
        done = true;
        ::close(opened); // a cancellation point; the file is closed before the thread ends
    });
    thread.join();
    EXPECT_TRUE(done);
    EXPECT_EQ(create_id(fd_, id), 0) << "the lock of the connection manager is still held";
    EXPECT_EQ(resolve(fd_, id), 0);
    EXPECT_TRUE(is_readable(fd_));
}

/// Joins a multicast group. Stores the handle of the group in @p response.
int join(int fd, std::uint32_t id, rdma_ucm_create_id_resp* response) {
    rdma_ucm_join_ip_mcast body{};
    body.response = reinterpret_cast<std::uintptr_t>(response);
    body.addr.sin6_family = AF_INET;
    const std::uint8_t group[4] = {239, 1, 2, 3};
    std::memcpy(reinterpret_cast<char*>(&body.addr) + 4, group, sizeof group);
    body.id = id;
    return command(fd, RDMA_USER_CM_CMD_JOIN_IP_MCAST, body, sizeof *response);
}

int leave(int fd, std::uint32_t handle) {
    rdma_ucm_destroy_id_resp response{};
    rdma_ucm_destroy_id body{};
    body.response = reinterpret_cast<std::uintptr_t>(&response);
    body.id = handle;
    return command(fd, RDMA_USER_CM_CMD_LEAVE_MCAST, body, sizeof response);
}

TEST_F(CmDescriptor, LeavesAGroupWhoseHandleCannotBeReturned) {
    std::uint32_t id = 0;
    ASSERT_EQ(create_id(fd_, id, RDMA_PS_UDP), 0);
    ASSERT_EQ(resolve(fd_, id), 0);
    rdma_ucm_create_id_resp first{};
    ASSERT_EQ(join(fd_, id, &first), 0);
    ASSERT_EQ(leave(fd_, first.id), 0);
    ASSERT_EQ(join(fd_, id, nullptr), EFAULT);
    // Handles are assigned in order.
    EXPECT_EQ(leave(fd_, first.id + 1), ENOENT);
}

TEST_F(CmDescriptor, LeavesTheBytesOfAFileThatHasReplacedIt) {
    std::uint32_t id = 0;
    ASSERT_EQ(create_id(fd_, id), 0);
    ASSERT_EQ(resolve(fd_, id), 0);
    ASSERT_TRUE(is_readable(fd_)); // an event, which softverbs removes with the file
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    ASSERT_EQ(::write(ends[1], "hello", 5), 5);
    // softverbs does not intercept this call. Its thread detects that the file is closed.
    ASSERT_EQ(::syscall(SYS_dup3, ends[0], fd_, O_CLOEXEC), fd_);
    EXPECT_TRUE(eventually([] { return is_at_rest(::getpid()); }));
    std::array<char, 8> bytes{};
    EXPECT_EQ(::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT), 5);
    EXPECT_STREQ(bytes.data(), "hello");
    EXPECT_EQ(::close(ends[0]), 0);
    EXPECT_EQ(::close(ends[1]), 0);
}

TEST_F(CmDescriptor, StaysOpenIfAChildByVforkClosesItsOwn) {
    std::uint32_t id = 0;
    ASSERT_EQ(create_id(fd_, id), 0);
    static int null;
    null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    run_in_vfork_child([](int fd) { ::close(fd); }, fd_);
    run_in_vfork_child([](int fd) { ::close_range(static_cast<unsigned>(fd), ~0U, 0); }, fd_);
    run_in_vfork_child([](int fd) { ::dup2(null, fd); }, fd_);
    run_in_vfork_child([](int fd) { ::dup2(fd, null); }, fd_);
    EXPECT_EQ(::write(null, "x", 1), 1) << "a copy of the child is a device in its parent";
    EXPECT_EQ(::close(null), 0);
    EXPECT_EQ(resolve(fd_, id), 0);
    EXPECT_TRUE(is_readable(fd_));
}

} // namespace
} // namespace softverbs_test
