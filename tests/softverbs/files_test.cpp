// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

namespace {

class FilesTest : public testing::Test {
  public:
    FilesTest() : list_(ibv_get_device_list(nullptr)) {}
    FilesTest(const FilesTest&) = delete;
    FilesTest& operator=(const FilesTest&) = delete;
    ~FilesTest() override { ibv_free_device_list(list_); }

  protected:
    std::string device_file() const { return std::string("/dev/infiniband/") + list_[0]->dev_name; }

  private:
    ibv_device** list_;
};

TEST_F(FilesTest, OfADeviceIsACharacterDeviceThatMayBeReadAndWritten) {
    struct stat status {};
    ASSERT_EQ(::stat(device_file().c_str(), &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    EXPECT_EQ(::access(device_file().c_str(), R_OK | W_OK), 0);
    const int fd = ::open(device_file().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ::close(fd);
}

TEST_F(FilesTest, OfADeviceIsFoundRelativeToTheRootDirectory) {
    const int root = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_GE(root, 0);
    const int fd = ::openat(root, device_file().c_str() + 1, O_RDWR | O_CLOEXEC);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(::faccessat(root, device_file().c_str() + 1, R_OK, 0), 0);
    ::close(fd);
    ::close(root);
}

TEST_F(FilesTest, OfADeviceThatDoesNotExistAreNotFound) {
    const std::string name = device_file() + "99";
    errno = 0;
    EXPECT_EQ(::open(name.c_str(), O_RDWR | O_CLOEXEC), -1);
    EXPECT_EQ(errno, ENOENT);
    errno = 0;
    EXPECT_EQ(::fopen(name.c_str(), "re"), nullptr);
    EXPECT_EQ(errno, ENOENT);
}

TEST_F(FilesTest, OfOtherNamesAreTheKernels) {
    const int fd = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    char byte = 1;
    EXPECT_EQ(::read(fd, &byte, 1), 1);
    EXPECT_EQ(byte, 0);
    ::close(fd);
    struct stat status {};
    EXPECT_EQ(::stat("/sys/class", &status), 0);
    EXPECT_TRUE(S_ISDIR(status.st_mode));
}

TEST_F(FilesTest, AreCreatedWithTheModeThatTheProgramGave) {
    const std::string path = testing::TempDir() + "softverbs-files-" + std::to_string(::getpid());
    const mode_t before = ::umask(0);
    const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0640);
    ::umask(before);
    ASSERT_GE(fd, 0);
    struct stat status {};
    EXPECT_EQ(::fstat(fd, &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0640U);
    ::close(fd);
    ::unlink(path.c_str());
}

} // namespace
