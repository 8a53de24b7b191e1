// SPDX-License-Identifier: BSD-3-Clause
// Import of a device file and its objects, and the message that carries them.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/shared_objects.hpp>

#include "child_process.hpp"
#include "softverbs_fixture.hpp"

namespace {

/// What ibv_import_device(3) does with its descriptor, instead of importing it.
std::function<void(int)> import_failure;

} // namespace

/// A program's own definition wins over that of a shared library.
extern "C" ibv_context* ibv_import_device(int cmd_fd) {
    if (import_failure) {
        import_failure(cmd_fd);
        errno = EIO;
        return nullptr;
    }
    static auto* const real =
        reinterpret_cast<decltype(&ibv_import_device)>(::dlsym(RTLD_NEXT, "ibv_import_device"));
    return real(cmd_fd);
}

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using namespace std::chrono_literals;

constexpr auto long_enough = 20s;

struct SocketPair {
    explicit SocketPair(int domain = AF_UNIX, int type = SOCK_STREAM | SOCK_CLOEXEC) {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(domain, type, 0, ends.data()), 0);
        here = UniqueFd(ends[0]);
        there = UniqueFd(ends[1]);
    }
    UniqueFd here, there;
};

/// Sends @p bytes with @p descriptors.
void send_raw(int socket, std::span<const std::byte> bytes, const std::vector<int>& descriptors) {
    iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * descriptors.size()));
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* const each = CMSG_FIRSTHDR(&message);
        each->cmsg_level = SOL_SOCKET;
        each->cmsg_type = SCM_RIGHTS;
        each->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
        std::memcpy(CMSG_DATA(each), descriptors.data(), sizeof(int) * descriptors.size());
    }
    ASSERT_EQ(::sendmsg(socket, &message, 0), static_cast<ssize_t>(bytes.size()));
}

std::vector<std::byte> message_bytes(std::initializer_list<unsigned> numbers) {
    std::vector<std::byte> bytes;
    for (const unsigned number : numbers) {
        bytes.push_back(static_cast<std::byte>(number));
    }
    return bytes;
}
/// A message of protection domain 7 without other objects.
const std::vector<std::byte> smallest =
    message_bytes({'R', 'D', 'S', 'O', 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0});

class SharedObjectsTest : public testing::SoftverbsTest {
  protected:
    [[nodiscard]] Context import_context() const {
        return Context::import_descriptor(UniqueFd(::dup(basics_.context.native()->cmd_fd)));
    }

    testing::Basics basics_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(8192);
};

TEST_F(SharedObjectsTest, ImportedObjectsAreUsedByAQueuePairAndOutliveTheImport) {
    const MemoryRegion region(basics_.pd, memory_.data(), 8192, {.access = full_access});
    DeviceMemory nic(basics_.context, 256);
    const SharedObjects shared{.pd = basics_.pd.native()->handle,
                               .regions = {SharedRegion::of(region)},
                               .memories = {SharedDeviceMemory::of(nic)}};
    const SocketPair sockets;
    send_objects(sockets.here.get(), basics_.context, shared, long_enough);
    ReceivedObjects received = receive_objects(sockets.there.get(), long_enough);
    EXPECT_EQ(received.objects, shared);
    EXPECT_TRUE(testing::closed_on_exec(received.device.get()));
    EXPECT_NE(received.device.get(), basics_.context.native()->cmd_fd);
    {
        const Context context = Context::import_descriptor(std::move(received.device));
        EXPECT_EQ(context.device_name(), basics_.context.device_name());
        EXPECT_EQ(testing::open_descriptors().count(context.native()->cmd_fd), 1U);
        const auto pd = ProtectionDomain::import_handle(context, received.objects.pd);
        const ImportedMR imported(pd, received.objects.regions.at(0));
        EXPECT_EQ(imported.lkey(), region.lkey());
        EXPECT_EQ(imported.rkey(), region.rkey());
        EXPECT_EQ(imported.iova(), region.iova());
        EXPECT_EQ(imported.length(), 8192U);
        EXPECT_EQ(imported.access(), full_access);

        const CompletionQueue cq(context);
        const QueuePair qp =
            testing::connect_to_itself(QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq}));
        std::memset(memory_.data(), 0x5a, 4096);
        ASSERT_TRUE(qp.post_write(imported.sge(0, 4096), imported.remote().at(4096)).ok());
        std::array<WorkCompletion, 1> done{};
        ASSERT_EQ(cq.wait(done, long_enough), 1);
        EXPECT_TRUE(succeeded(done[0]));
        EXPECT_EQ(memory_[8191], std::byte{0x5a});

        const auto& described = received.objects.memories.at(0);
        auto imported_nic = DeviceMemory::import_handle(context, described.handle, described.size);
        EXPECT_EQ(imported_nic.size(), 256U);
        const std::vector<std::byte> written(64, std::byte{0x33});
        imported_nic.copy_in(64, written);
        const DeviceMemoryMR nic_region(pd, imported_nic);
    }
    std::vector<std::byte> read(64);
    nic.copy_out(64, read);
    EXPECT_EQ(read, std::vector<std::byte>(64, std::byte{0x33}));
    // Nothing was destroyed with the imports: the device memory can be registered, and the region
    // can be used and deregistered.
    const DeviceMemoryMR nic_region(basics_.pd, nic);
    const QueuePair qp = testing::connect_to_itself(
        QueuePair::prepare(basics_.pd, {.send_cq = basics_.cq, .recv_cq = basics_.cq}));
    ASSERT_TRUE(qp.post_read(region.sge(0, 64), region.remote().at(4096)).ok());
    std::array<WorkCompletion, 1> done{};
    ASSERT_EQ(basics_.cq.wait(done, long_enough), 1);
    EXPECT_TRUE(succeeded(done[0]));
}

TEST_F(SharedObjectsTest, CloseAndReleaseOfAnImportLeaveTheOriginal) {
    MemoryRegion region(basics_.pd, memory_.data(), 4096);
    const Context context = import_context();
    auto pd = ProtectionDomain::import_handle(context, basics_.pd.native()->handle);
    ImportedMR imported(pd, SharedRegion::of(region));
    imported.close();
    EXPECT_EQ(imported.native(), nullptr);
    {
        ImportedMR again(pd, SharedRegion::of(region));
        ibv_unimport_mr(again.release());
    }
    pd.close();
    region.close(); // fails if an import had deregistered it
    basics_.cq.close();
    basics_.pd.close();
}

TEST_F(SharedObjectsTest, ImportedDomainAndRegionSurviveTheObjectsBeforeThem) {
    const MemoryRegion region(basics_.pd, memory_.data(), 4096);
    std::optional<Context> context = import_context();
    std::optional<ProtectionDomain> pd =
        ProtectionDomain::import_handle(*context, basics_.pd.native()->handle);
    EXPECT_THAT(error_of([&] { context->close(); }), fails_with("ibv_close_device", EBUSY, ""));
    context.reset();
    EXPECT_EQ(pd->context().device_name(), basics_.context.device_name());
    const ImportedMR imported(*pd, SharedRegion::of(region));
    EXPECT_THAT(error_of([&] { pd->close(); }), fails_with("ibv_dealloc_pd", EBUSY, ""));
    pd.reset();
    EXPECT_EQ(imported.protection_domain().native()->handle, basics_.pd.native()->handle);
}

TEST_F(SharedObjectsTest, ImportsThatFailNameTheirHandleAndLeaveNothing) {
    EXPECT_THAT(error_of([] { static_cast<void>(Context::import_descriptor(UniqueFd())); }),
                fails_with("ibv_import_device", EBADF, ""));
    const SocketPair sockets;
    EXPECT_TRUE(
        error_of([&] { static_cast<void>(Context::import_descriptor(sockets.here.duplicate())); }));
    const Context context = import_context();
    EXPECT_THAT(
        error_of([&] { static_cast<void>(ProtectionDomain::import_handle(context, 4711)); }),
        fails_with("ibv_import_pd", ENOENT, "protection domain 4711 of soft0"));
    EXPECT_THAT(
        error_of([&] { static_cast<void>(DeviceMemory::import_handle(context, 4711, 64)); }),
        fails_with("ibv_import_dm", ENOENT, "device memory 4711 of soft0"));
    const auto pd = ProtectionDomain::import_handle(context, basics_.pd.native()->handle);
    EXPECT_THAT(error_of([&] { const ImportedMR none(pd, {.handle = 4711}); }),
                fails_with("ibv_import_mr", ENOENT, "region 4711 of soft0"));
    const MemoryRegion region(basics_.pd, memory_.data(), 4096);
    SharedRegion wrong = SharedRegion::of(region);
    wrong.length = 8192;
    EXPECT_THAT(error_of([&] { const ImportedMR none(pd, wrong); }),
                fails_with("ibv_import_mr", EPROTO, "has 4096 bytes, not 8192"));
}

TEST_F(SharedObjectsTest, AnImportThatFailsClosesItsDescriptorOnce) {
    UniqueFd device(::fcntl(basics_.context.native()->cmd_fd, F_DUPFD_CLOEXEC, 0));
    const int number = device.get();
    // libibverbs closes the descriptor if it fails late, and another thread gets the number.
    import_failure = [](int fd) { ::dup2(STDERR_FILENO, fd); };
    EXPECT_THAT(error_of([&] { (void)Context::import_descriptor(std::move(device)); }),
                fails_with("ibv_import_device", EIO, ""));
    EXPECT_EQ(::fcntl(number, F_GETFD), 0) << "it belongs to the other thread";
    ::close(number);
    import_failure = [](int fd) { ::close(fd); };
    EXPECT_TRUE(error_of([&] {
        (void)Context::import_descriptor(UniqueFd(::dup(basics_.context.native()->cmd_fd)));
    }));
    EXPECT_EQ(::fcntl(number, F_GETFD), -1);
    // The other thread may have opened the same device.
    import_failure = [](int fd) {
        const std::string path = "/proc/self/fd/" + std::to_string(fd);
        const UniqueFd reopened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        EXPECT_EQ(::dup2(reopened.get(), fd), fd);
    };
    EXPECT_TRUE(error_of([&] {
        (void)Context::import_descriptor(UniqueFd(::dup(basics_.context.native()->cmd_fd)));
    }));
    EXPECT_EQ(::fcntl(number, F_GETFD), 0);
    ::close(number);
    // If libibverbs fails early, it leaves the descriptor open.
    import_failure = [](int) {};
    EXPECT_TRUE(error_of([&] {
        (void)Context::import_descriptor(UniqueFd(::dup(basics_.context.native()->cmd_fd)));
    }));
    EXPECT_EQ(::fcntl(number, F_GETFD), -1);
    import_failure = nullptr;
}

// A process that sends descriptors must not be able to use up those of this process.
TEST_F(SharedObjectsTest, AnImportOfAWrongDescriptorClosesIt) {
    import_failure = [](int) {};
    const UniqueFd memfd(::memfd_create("wrong", MFD_CLOEXEC));
    const std::string path = "/proc/self/fd/" + std::to_string(memfd.get());
    const UniqueFd locked(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_len = 1;
    ASSERT_EQ(::fcntl(locked.get(), F_OFD_SETLK, &lock), 0);
    for (const int mode : {O_RDWR, O_WRONLY, O_RDONLY, O_PATH}) {
        SCOPED_TRACE(mode);
        UniqueFd wrong(::open(path.c_str(), mode | O_CLOEXEC));
        const int number = wrong.get();
        EXPECT_TRUE(error_of([&] { (void)Context::import_descriptor(std::move(wrong)); }));
        EXPECT_EQ(::fcntl(number, F_GETFD), -1);
    }
    import_failure = nullptr;
}

TEST_F(SharedObjectsTest, LongMessagesPassAShortSocketBuffer) {
    SharedObjects shared{.pd = 1, .regions = {}, .memories = {}};
    for (std::uint32_t i = 0; i < 1024; ++i) {
        shared.regions.push_back({.handle = i,
                                  .access = Access::remote_read,
                                  .iova = 0x1122334455660000U + i,
                                  .length = 4096U + i});
        shared.memories.push_back({.handle = i, .size = std::uint64_t{64} * i});
    }
    const SocketPair sockets;
    const int small = 4096;
    ASSERT_EQ(::setsockopt(sockets.here.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(sockets.there.get());
        send_objects(sockets.here.get(), basics_.context, shared, long_enough);
        ::_exit(0);
    }
    EXPECT_EQ(receive_objects(sockets.there.get(), long_enough).objects, shared);
    expect_success(child);
    shared.regions.emplace_back();
    EXPECT_THAT(
        error_of([&] { send_objects(sockets.here.get(), basics_.context, shared, long_enough); }),
        fails_with("send_objects", E2BIG, "up to 1024"));
}

TEST_F(SharedObjectsTest, SocketsThatCannotCarryADescriptorAreRefused) {
    const SocketPair datagrams(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC);
    EXPECT_THAT(
        error_of([&] { send_objects(datagrams.here.get(), basics_.context, {}, long_enough); }),
        fails_with("send_objects", EINVAL, "UNIX domain stream socket"));
    const UniqueFd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_THAT(error_of([&] { static_cast<void>(receive_objects(tcp.get(), long_enough)); }),
                fails_with("receive_objects", EINVAL, "UNIX domain stream socket"));
}

TEST_F(SharedObjectsTest, InvalidMessagesLeaveNoDescriptorOpen) {
    struct Case {
        std::vector<std::byte> bytes;
        int descriptors;
        const char* function;
        int error;
    };
    std::vector<std::byte> other_kind = smallest;
    other_kind[0] = std::byte{'X'};
    std::vector<std::byte> other_version = smallest;
    other_version[4] = std::byte{2};
    std::vector<std::byte> reserved = smallest;
    reserved[6] = std::byte{1};
    std::vector<std::byte> too_many = smallest;
    too_many[13] = std::byte{5}; // 1280 regions
    std::vector<std::byte> overflow = smallest;
    overflow[12] = std::byte{1};
    overflow.resize(overflow.size() + 24, std::byte{0xff});
    for (const Case& each : std::vector<Case>{
             {other_kind, 1, "receive_objects", EPROTO},
             {other_version, 1, "receive_objects", EPROTONOSUPPORT},
             {reserved, 1, "receive_objects", EPROTO},
             {too_many, 1, "receive_objects", EPROTO},
             {overflow, 1, "receive_objects", EPROTO},
             {smallest, 0, "recvmsg", EPROTO},
             {smallest, 2, "recvmsg", EPROTO},
             {smallest, 3, "recvmsg", EPROTO},
         }) {
        const SocketPair sockets;
        const auto before = testing::open_descriptors();
        const std::vector<int> descriptors(static_cast<std::size_t>(each.descriptors),
                                           basics_.context.native()->cmd_fd);
        send_raw(sockets.here.get(), each.bytes, descriptors);
        EXPECT_THAT(
            error_of([&] { static_cast<void>(receive_objects(sockets.there.get(), long_enough)); }),
            fails_with(each.function, each.error, ""));
        EXPECT_EQ(testing::open_descriptors(), before);
    }
}

TEST_F(SharedObjectsTest, MessageThatDoesNotComeOrIsCutShortIsAnError) {
    SocketPair sockets;
    EXPECT_THAT(error_of([&] { static_cast<void>(receive_objects(sockets.there.get(), 20ms)); }),
                fails_with("recvmsg", ETIMEDOUT, "nothing arrived within 20 ms"));
    std::vector<std::byte> cut = smallest;
    cut[12] = std::byte{1}; // one region, which does not follow
    const auto before = testing::open_descriptors();
    send_raw(sockets.here.get(), cut, {basics_.context.native()->cmd_fd});
    EXPECT_THAT(error_of([&] { static_cast<void>(receive_objects(sockets.there.get(), 500ms)); }),
                fails_with("recv", ETIMEDOUT, "shared objects"));
    EXPECT_EQ(testing::open_descriptors(), before);
    sockets.here.reset();
    EXPECT_THAT(
        error_of([&] { static_cast<void>(receive_objects(sockets.there.get(), long_enough)); }),
        fails_with("recvmsg", ECONNRESET, "closed the connection"));
    EXPECT_THAT(error_of([&] { send_objects(-1, basics_.context, {}, 20ms); }),
                fails_with("getsockopt", EBADF, ""));
}

} // namespace
} // namespace rdmabuf
