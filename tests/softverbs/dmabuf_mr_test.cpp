// SPDX-License-Identifier: BSD-3-Clause
// Registration of dma-bufs, for which memfds are used. Where no data is moved, the tests have the
// names and purposes of DmaBufMRTest in pyverbs (rdma-core).
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "memory_fixture.hpp"

namespace softverbs_test {
namespace {

class DmaBufMRTest : public MemoryTest {
  protected:
    std::size_t page_ = Pages::page();
    MemFd buffer_{8 * Pages::page()};

    ibv_mr* reg(std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                unsigned access) {
        return ibv_reg_dmabuf_mr(pd.get(), offset, length, iova, fd, static_cast<int>(access));
    }
    int registration_error(std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                           unsigned access = IBV_ACCESS_LOCAL_WRITE) {
        return error_of([&] { return reg(offset, length, iova, fd, access); });
    }
    int registration_error(int fd, unsigned access = 0) {
        return registration_error(0, page_, 0, fd, access);
    }
    /// Opens the memfd again with other flags.
    int reopened(int flags) {
        return ::open(("/proc/self/fd/" + std::to_string(buffer_.get())).c_str(),
                      flags | O_CLOEXEC);
    }
};

TEST_F(DmaBufMRTest, RegMr) {
    constexpr std::array all_access{
        0U,
        full_access,
        full_access | IBV_ACCESS_RELAXED_ORDERING,
        static_cast<unsigned>(IBV_ACCESS_REMOTE_READ),
    };
    for (const unsigned access : all_access) {
        for (const std::size_t offset : {std::size_t{0}, page_, 2 * page_ + 24}) {
            ibv_mr* const mr = reg(offset, page_, 16 * page_ + offset, buffer_.get(), access);
            ASSERT_NE(mr, nullptr);
            // addr contains the offset instead of an address, as in libibverbs.
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mr->addr), offset);
            EXPECT_EQ(mr->length, page_);
            EXPECT_EQ(mr->pd, pd.get());
            EXPECT_NE(mr->lkey, 0U);
            EXPECT_NE(mr->rkey, mr->lkey);
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
        }
    }
}

TEST_F(DmaBufMRTest, TheDescriptorMayBeClosedAtOnce) {
    const std::ptrdiff_t before = open_descriptors();
    {
        MemFd file(page_);
        ibv_mr* const mr = reg(0, page_, 0, file.get(), IBV_ACCESS_LOCAL_WRITE);
        ibv_mr* const another = reg(0, 64, 0, file.get(), 0);
        file.close();
        ASSERT_NE(mr, nullptr);
        ASSERT_NE(another, nullptr);
        EXPECT_EQ(open_descriptors(), before + 1); // one of softverbs', for both
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(open_descriptors(), before + 1);
        EXPECT_EQ(ibv_dereg_mr(another), 0);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(DmaBufMRTest, RegMrBadFlags) {
    constexpr std::array<unsigned, 6> refused{IBV_ACCESS_MW_BIND,
                                              IBV_ACCESS_ZERO_BASED,
                                              IBV_ACCESS_ON_DEMAND,
                                              IBV_ACCESS_HUGETLB,
                                              1U << 8U,
                                              1U << 21U};
    for (const unsigned flag : refused) {
        EXPECT_EQ(registration_error(buffer_.get(), IBV_ACCESS_LOCAL_WRITE | flag), EINVAL);
    }
    EXPECT_EQ(registration_error(buffer_.get(), IBV_ACCESS_REMOTE_WRITE), EINVAL);
    EXPECT_EQ(registration_error(buffer_.get(), IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
}

TEST_F(DmaBufMRTest, OffsetAndIovaShareThePageOffset) {
    EXPECT_EQ(registration_error(24, 64, 0, buffer_.get()), EINVAL);
    EXPECT_EQ(registration_error(0, 64, 24, buffer_.get()), EINVAL);
    EXPECT_EQ(registration_error(24, 64, 7 * page_ + 24, buffer_.get()), 0);
}

TEST_F(DmaBufMRTest, LiesWithinTheBuffer) {
    constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
    EXPECT_EQ(registration_error(0, 8 * page_, 0, buffer_.get()), 0);
    EXPECT_EQ(registration_error(0, 8 * page_ + 1, 0, buffer_.get()), EINVAL);
    EXPECT_EQ(registration_error(8 * page_, 1, 0, buffer_.get()), EINVAL);
    EXPECT_EQ(registration_error(page_, max, 0, buffer_.get()), EINVAL);
    EXPECT_EQ(registration_error(max - page_ + 1, 2 * page_, 0, buffer_.get()), EINVAL);
    EXPECT_EQ(registration_error(0, 0, 0, buffer_.get()), EINVAL);
}

TEST_F(DmaBufMRTest, OfNoDescriptorIsEbadf) {
    EXPECT_EQ(registration_error(-1), EBADF); // which is how programs ask whether it is supported
    EXPECT_EQ(registration_error(987654), EBADF);
    const int path_only = ::open("/", O_PATH | O_CLOEXEC);
    EXPECT_EQ(registration_error(path_only), EBADF);
    ::close(path_only);
    // Errors in other arguments have priority over EBADF.
    EXPECT_EQ(registration_error(0, page_, 1, -1), EINVAL);
}

TEST_F(DmaBufMRTest, OfWhatIsNoDmaBufIsEinval) {
    std::vector<int> descriptors{::eventfd(0, EFD_CLOEXEC)};
    for (const char* const path : {"/", "/dev/null", "/dev/zero", "/proc/self/exe"}) {
        descriptors.push_back(::open(path, O_RDONLY | O_CLOEXEC));
    }
    std::array<int, 2> pair{};
    ASSERT_EQ(::pipe2(pair.data(), O_CLOEXEC), 0);
    descriptors.insert(descriptors.end(), pair.begin(), pair.end());
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
    descriptors.insert(descriptors.end(), pair.begin(), pair.end());
    std::FILE* const file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(::ftruncate(::fileno(file), static_cast<off_t>(page_)), 0);
    EXPECT_EQ(registration_error(::fileno(file)), EINVAL);
    std::fclose(file);
    for (const int fd : descriptors) {
        ASSERT_GE(fd, 0);
        EXPECT_EQ(registration_error(fd), EINVAL);
        ::close(fd);
    }
}

TEST_F(DmaBufMRTest, OfAFileInSharedMemoryIsEinvalThoughItHasSeals) {
    const std::string path = "/dev/shm/softverbs-test-" + std::to_string(::getpid());
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        GTEST_SKIP() << "no /dev/shm here";
    }
    EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(page_)), 0);
    EXPECT_EQ(registration_error(fd), EINVAL);
    EXPECT_EQ(::unlink(path.c_str()), 0);
    EXPECT_EQ(registration_error(fd), EINVAL);
    ::close(fd);
}

TEST_F(DmaBufMRTest, OfADescriptorForReadingIsForReadingOnly) {
    const int fd = reopened(O_RDONLY);
    EXPECT_EQ(registration_error(fd, full_access), EACCES);
    ibv_mr* const readable = reg(0, page_, 0, fd, IBV_ACCESS_REMOTE_READ);
    ASSERT_NE(readable, nullptr);
    ::close(fd);
    const int write_only = reopened(O_WRONLY);
    EXPECT_EQ(registration_error(write_only, 0), EACCES);
    ::close(write_only);
    destroy(readable);
}

TEST_F(DmaBufMRTest, OfASealedFileIsForReadingOnly) {
    const MemFd file(page_, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
    EXPECT_EQ(registration_error(file.get(), full_access), EACCES);
    EXPECT_EQ(registration_error(file.get(), IBV_ACCESS_REMOTE_READ), 0);
}

TEST_F(DmaBufMRTest, AFileThatIsMappedCannotShrink) {
    const MemFd file(2 * page_, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(registration_error(file.get()), 0);
    EXPECT_EQ(::ftruncate(file.get(), 0), -1);
    EXPECT_EQ(errno, EPERM);
}

TEST_F(DmaBufMRTest, AFileThatHasGrownCanBeRegisteredInWhole) {
    const MemFd file(page_);
    ibv_mr* const before = reg(0, page_, 0, file.get(), 0);
    ASSERT_NE(before, nullptr);
    EXPECT_EQ(registration_error(0, 2 * page_, 0, file.get()), EINVAL);
    ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(2 * page_)), 0);
    EXPECT_EQ(registration_error(0, 2 * page_, 0, file.get()), 0);
    destroy(before);
}

TEST_F(DmaBufMRTest, LeavesTheFilePositionAlone) {
    ASSERT_EQ(::lseek(buffer_.get(), 7, SEEK_SET), 7);
    EXPECT_EQ(registration_error(buffer_.get()), 0);
    EXPECT_EQ(::lseek(buffer_.get(), 0, SEEK_CUR), 7);
}

TEST_F(DmaBufMRTest, FailsAsKernelsWithoutIt) {
    for (const int error : {EOPNOTSUPP, EPROTONOSUPPORT}) {
        ASSERT_EQ(softverbs_set_dmabuf_errors(0, error, 0, 0), 0);
        EXPECT_EQ(registration_error(buffer_.get()), error);
        EXPECT_EQ(registration_error(-1), error);
    }
}

TEST_F(DmaBufMRTest, FailsAsExportersThatRefuse) {
    for (const int error : {EOPNOTSUPP, ENODEV, 524}) {
        ASSERT_EQ(softverbs_set_dmabuf_errors(0, 0, error, 0), 0);
        EXPECT_EQ(registration_error(buffer_.get()), error);
        EXPECT_EQ(registration_error(-1), EBADF);
        EXPECT_EQ(registration_error(0, 9 * page_, 0, buffer_.get()), EINVAL);
    }
}

TEST_F(DmaBufMRTest, FailsWhereTheProviderHasNoSuchFunction) {
    ASSERT_EQ(
        softverbs_set_features(0, softverbs_features(0) & ~unsigned{SOFTVERBS_FEATURE_DMABUF}), 0);
    EXPECT_EQ(registration_error(-1), EOPNOTSUPP);
    EXPECT_EQ(registration_error(0, page_, 1, buffer_.get()), EOPNOTSUPP);
}

TEST_F(DmaBufMRTest, FailsAsTheKindOfDeviceDoes) {
    use("old-kernel");
    EXPECT_EQ(registration_error(-1), EPROTONOSUPPORT);
    use("rxe");
    EXPECT_EQ(registration_error(-1), EOPNOTSUPP);
    use("small-mr");
    const MemFd large((std::size_t{1} << 20U) + 1);
    EXPECT_EQ(registration_error(0, (std::size_t{1} << 20U) + 1, 0, large.get()), EINVAL);
    EXPECT_EQ(registration_error(0, std::size_t{1} << 20U, 0, large.get()), 0);
    // The profile has no atomics. This is checked before the descriptor.
    use("efa");
    EXPECT_EQ(registration_error(-1, full_access), EOPNOTSUPP);
    EXPECT_EQ(registration_error(buffer_.get(), full_access), EOPNOTSUPP);
    EXPECT_EQ(registration_error(buffer_.get(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
              0);
}

TEST_F(DmaBufMRTest, TakesAnythingWhereItWasToldNotToLook) {
    ASSERT_EQ(softverbs_set_dmabuf_errors(0, 0, 0, 1), 0);
    EXPECT_EQ(registration_error(-1), 0);
    EXPECT_EQ(registration_error(0, 100 * page_, 0, buffer_.get()), 0);
    EXPECT_EQ(registration_error(0, page_, 1, -1), EINVAL);
}

} // namespace
} // namespace softverbs_test
