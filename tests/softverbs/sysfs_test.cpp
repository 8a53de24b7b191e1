// SPDX-License-Identifier: BSD-3-Clause
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <net/if.h>
#include <softverbs/softverbs.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "child_process.hpp"
#include "temporary_directory.hpp"

namespace {

using testing::Contains;
using testing::Not;

std::string read_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> entries_of(const std::string& path) {
    std::set<std::string> names;
    DIR* const directory = ::opendir(path.c_str());
    if (directory == nullptr) {
        return names;
    }
    while (const dirent* const entry = ::readdir(directory)) {
        names.insert(entry->d_name);
    }
    ::closedir(directory);
    return names;
}

std::string real_path(const std::string& path) {
    char* const found = ::realpath(path.c_str(), nullptr);
    std::string text = found != nullptr ? found : "";
    ::free(found);
    return text;
}

class SysfsTest : public testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(softverbs_reset(nullptr, 2), 0); }
    void TearDown() override { softverbs_reset(nullptr, 0); }

    const std::string soft0_ = "/sys/class/infiniband/soft0";
};

TEST_F(SysfsTest, ListsTheDevices) {
    EXPECT_THAT(entries_of("/sys/class/infiniband"), Contains("soft0"));
    EXPECT_THAT(entries_of("/sys/class/infiniband"), Contains("soft1"));
    EXPECT_THAT(entries_of("/sys/class/infiniband"), Not(Contains("soft2")));
}

TEST_F(SysfsTest, ShowsADeviceAndItsPort) {
    EXPECT_EQ(read_file(soft0_ + "/node_type"), "1: CA\n");
    EXPECT_EQ(read_file(soft0_ + "/node_guid"), "5076:65ff:fe00:0001\n");
    EXPECT_EQ(read_file(soft0_ + "/ports/1/state"), "4: ACTIVE\n");
    EXPECT_EQ(read_file(soft0_ + "/ports/1/phys_state"), "5: LinkUp\n");
    EXPECT_EQ(read_file(soft0_ + "/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
    EXPECT_EQ(read_file(soft0_ + "/ports/1/gids/0"), "fe80:0000:0000:0000:5076:65ff:fe00:0001\n");
    EXPECT_EQ(read_file(soft0_ + "/ports/1/pkeys/0"), "0xffff\n");
    EXPECT_EQ(read_file(soft0_ + "/no_such_file"), "");
}

TEST_F(SysfsTest, FollowsTheStateOfAPort) {
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    EXPECT_EQ(read_file(soft0_ + "/ports/1/state"), "1: DOWN\n");
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    EXPECT_EQ(read_file(soft0_ + "/ports/1/state"), "4: ACTIVE\n");
}

TEST_F(SysfsTest, HasAPciFunctionForEachDevice) {
    const std::string function = "/sys/devices/pci5056:00/5056:00:00.0";
    EXPECT_EQ(real_path(soft0_ + "/device"), function);
    EXPECT_EQ(real_path("/sys/class/infiniband/soft1/device"),
              "/sys/devices/pci5056:00/5056:00:00.1");
    EXPECT_EQ(real_path("/sys/bus/pci/devices/5056:00:00.0"), function);
    EXPECT_EQ(real_path("/sys/class/pci_bus/5056:00/../../5056:00:00.0"), function); // as NCCL does
    EXPECT_EQ(real_path(function + "/subsystem"), "/sys/bus/pci");
    EXPECT_EQ(read_file(function + "/class"), "0x020700\n");
    EXPECT_EQ(read_file(function + "/numa_node"), "0\n");
    EXPECT_THAT(entries_of("/sys/bus/pci/devices"), Contains("5056:00:00.0"));
    char target[PATH_MAX] = "";
    ASSERT_GT(::readlink((soft0_ + "/device").c_str(), target, sizeof target), 0);
    EXPECT_STREQ(target, "../../../5056:00:00.0");
}

TEST_F(SysfsTest, HasTheDirectoryOfTheDeviceFile) {
    ibv_device** const list = ibv_get_device_list(nullptr);
    EXPECT_EQ(read_file(std::string(list[0]->dev_path) + "/ibdev"), "soft0\n");
    EXPECT_EQ(std::string(list[0]->ibdev_path), soft0_);
    struct stat status {};
    EXPECT_EQ(::stat(list[0]->dev_path, &status), 0);
    EXPECT_TRUE(S_ISDIR(status.st_mode));
    ibv_free_device_list(list);
}

/// Returns the interfaces with an address, except loopback, in the order of their indices. Returns
/// "lo" if there are none.
std::vector<std::string> interfaces_with_address() {
    std::map<unsigned, std::string> by_index;
    ifaddrs* all = nullptr;
    EXPECT_EQ(::getifaddrs(&all), 0);
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr != nullptr && (each->ifa_flags & IFF_LOOPBACK) == 0 &&
            (each->ifa_addr->sa_family == AF_INET || each->ifa_addr->sa_family == AF_INET6)) {
            by_index[::if_nametoindex(each->ifa_name)] = each->ifa_name;
        }
    }
    ::freeifaddrs(all);
    std::vector<std::string> names;
    names.reserve(by_index.size());
    for (const auto& [index, name] : by_index) {
        names.push_back(name);
    }
    return names.empty() ? std::vector<std::string>{"lo"} : names;
}

TEST_F(SysfsTest, HasTheNetworkInterfacesThatLeadToTheDevice) {
    const std::vector<std::string> interfaces = interfaces_with_address();
    std::array<std::set<std::string>, 2> expected;
    for (std::size_t i = 0; i < interfaces.size(); ++i) {
        expected.at(i % 2).insert({interfaces[i], ".", ".."});
    }
    EXPECT_EQ(entries_of(soft0_ + "/device/net"), expected[0]);
    EXPECT_EQ(entries_of("/sys/class/infiniband/soft1/device/net"), expected[1]);
    const std::string first = "/device/net/" + interfaces.front() + "/ifindex";
    EXPECT_EQ(read_file(soft0_ + first),
              std::to_string(::if_nametoindex(interfaces.front().c_str())) + "\n");
}

TEST_F(SysfsTest, IsFoundRelativeToADirectory) {
    const int directory = ::open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_GE(directory, 0);
    EXPECT_EQ(::faccessat(directory, "soft0/ports/1/state", R_OK, 0), 0);
    ::close(directory);
    const int root = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT_EQ(::faccessat(root, "sys/class/infiniband/soft0/device/vendor", R_OK, 0), 0);
    ::close(root);
}

TEST_F(SysfsTest, LeavesTheFilesOfTheKernelAlone) {
    errno = 0;
    EXPECT_EQ(::access("/sys/class/infiniband/mlx5_99/node_type", R_OK), -1);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(real_path("/sys/class"), "/sys/class");
    EXPECT_EQ(read_file("/sys/kernel/mm/transparent_hugepage/enabled").empty(),
              ::access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0);
}

TEST_F(SysfsTest, RemovesTreesThatKilledProcessesHadBegunToWrite) {
    const TemporaryDirectory directory;
    ::setenv("SOFTVERBS_DIR", directory.path().c_str(), 1);
    const std::filesystem::path parent = std::filesystem::path(directory.path()) / "sysfs";
    for (const char* const name : {"new-1-abandoned", "new-2-begun"}) {
        std::filesystem::create_directories(parent / name / "sys");
    }
    const std::array<timespec, 2> long_ago{};
    ASSERT_EQ(::utimensat(AT_FDCWD, (parent / "new-1-abandoned").c_str(), long_ago.data(), 0), 0);
    ASSERT_EQ(softverbs_reset(nullptr, 3), 0); // no tree has been written for three devices
    EXPECT_EQ(read_file(soft0_ + "/node_type"), "1: CA\n");
    ::unsetenv("SOFTVERBS_DIR");
    EXPECT_FALSE(std::filesystem::exists(parent / "new-1-abandoned"));
    EXPECT_TRUE(std::filesystem::exists(parent / "new-2-begun"));
}

TEST_F(SysfsTest, IsReadableInAChildThatWasForkedWhileAnotherThreadReadIt) {
#ifdef RDMABUF_SANITIZED
    GTEST_SKIP() << "in a child, the allocator of AddressSanitizer waits for a lock that the other "
                    "thread had";
#endif
    std::atomic<bool> done = false;
    std::thread other([&] {
        while (!done) {
            static_cast<void>(::access((soft0_ + "/node_type").c_str(), R_OK));
        }
    });
    int failed = 0;
    for (int round = 0; round < 300 && failed == 0; ++round) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::alarm(60); // ends the child if it hangs
            ::_exit(::access((soft0_ + "/node_type").c_str(), R_OK) == 0 ? 0 : 1);
        }
        failed = status_of_child(child);
    }
    EXPECT_EQ(failed, 0);
    done = true;
    other.join();
}

} // namespace
