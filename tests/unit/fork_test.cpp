// SPDX-License-Identifier: BSD-3-Clause
// A child by fork(2) that runs the destructors of its parent's objects.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <vector>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/shared_receive_queue.hpp>

#include "child_process.hpp"
#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::record;
using namespace std::chrono_literals;

/// One object of each kind.
struct Objects {
    Objects() : region(pd, memory.data(), memory.size(), {.access = full_access}) {}

    std::vector<std::byte> memory = std::vector<std::byte>(4096);
    Context context = Context::open_first();
    ProtectionDomain pd{context};
    CompletionChannel channel{context};
    CompletionQueue cq{context, {.channel = &channel}};
    SharedReceiveQueue srq{pd};
    DeviceMemory nic{context, 64};
    DeviceMemoryMR nic_region{pd, nic};
    MemoryRegion region;
    AddressHandle address{
        pd, testing::own_address(context), {.gid_index = context.best_gid(1).index}};
    QueuePair qp = testing::connect_to_itself(
        QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq, .srq = &srq}));
};

/// Runs @p program in a child, which ends with its result. @return the result
template <class Program>
int run_in_child(const Program& program) {
    const pid_t child = ::fork();
    if (child == 0) {
        testing::forget_calls();
        ::_exit(program());
    }
    const int status = status_of_child(child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Fork : public testing::SoftverbsTest {
  protected:
    /// Whether no destructor called verbs, or failed.
    static bool nothing_was_destroyed() {
        return record().destroyed.empty() && testing::TeardownFailures::seen().empty();
    }
    static void expect_transfer(Objects& objects, std::byte value) {
        objects.memory[0] = value;
        ASSERT_TRUE(
            objects.qp.post_write(objects.region.sge(0, 64), objects.region.remote().at(64)).ok());
        std::array<WorkCompletion, 1> done{};
        ASSERT_EQ(objects.cq.wait(done, 20s), 1);
        EXPECT_TRUE(succeeded(done[0]));
        EXPECT_EQ(objects.memory[64], value);
    }
};

TEST_F(Fork, ChildThatClosesObjectsDestroysNone) {
    Objects objects;
    EXPECT_EQ(run_in_child([&] {
                  objects.qp.close();
                  objects.region.close();
                  objects.srq.close();
                  return nothing_was_destroyed() && objects.qp.native() == nullptr ? 0 : 1;
              }),
              0);
    expect_transfer(objects, std::byte{3});
}

TEST_F(Fork, ChildThatExitsRunsTheDestructorsOfStaticObjects) {
    static bool is_child = false;
    // Registered before `objects` is constructed, so it runs after its destructor.
    std::atexit([] {
        if (is_child && !record().destroyed.empty()) {
            ::_exit(1);
        }
    });
    static std::optional<Objects> objects;
    objects.emplace();
    const pid_t child = ::fork();
    if (child == 0) {
        is_child = true;
        testing::forget_calls();
        std::exit(0);
    }
    expect_success(child);
    expect_transfer(*objects, std::byte{4});
    objects.reset();
}

TEST_F(Fork, ChildDestroysTheObjectsThatItHasCreated) {
    std::optional<Objects> of_parent(std::in_place);
    EXPECT_EQ(run_in_child([&] {
                  const std::size_t own = [] {
                      const Context context = Context::open_first();
                      const ProtectionDomain pd(context);
                      std::vector<std::byte> memory(4096);
                      { const MemoryRegion region(pd, memory.data(), memory.size()); }
                      return record().destroyed.size();
                  }();
                  of_parent.reset();
                  // The device list and the region, then the protection domain and the context.
                  return own == 2 && record().destroyed.size() == 4 ? 0 : 1;
              }),
              0);
    expect_transfer(*of_parent, std::byte{5});
}

TEST_F(Fork, GrandchildDestroysNeitherTheObjectsOfItsParentNorOfItsGrandparent) {
    std::optional<Objects> of_grandparent(std::in_place);
    EXPECT_EQ(run_in_child([&] {
                  std::optional<ProtectionDomain> of_parent(Context::open_first());
                  return run_in_child([&] {
                      of_parent.reset();
                      of_grandparent.reset();
                      return nothing_was_destroyed() ? 0 : 1;
                  });
              }),
              0);
    expect_transfer(*of_grandparent, std::byte{6});
}

TEST_F(Fork, ChildClosesTheDescriptorOfAnExportAndDoesNotCallItsExporter) {
    static int released = 0;
    released = 0;
    const auto release = [](int fd) {
        ++released;
        ::close(fd);
    };
    const int fd = testing::make_dmabuf(4096).release();
    std::optional<ExportedRange> range(std::in_place, "test", fd, release, 0, 4096, 0,
                                       MappingKind::standard);
    EXPECT_EQ(run_in_child([&] {
                  range.reset();
                  return released == 0 && !testing::open_descriptors().contains(fd) ? 0 : 1;
              }),
              0);
    range.reset();
    EXPECT_EQ(released, 1);
}

} // namespace
} // namespace rdmabuf
