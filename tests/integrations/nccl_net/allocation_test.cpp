// SPDX-License-Identifier: BSD-3-Clause
// Messages allocate no memory in the plugin, except the first ones.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fixture.hpp"

namespace {

std::atomic<unsigned> allocations{0};

/// Returns true for allocations of the plugin, which is a library, and of the C++ library. The
/// allocations of the test and of the software device do not count.
bool counts(const void* caller) {
    Dl_info info{};
    return ::dladdr(caller, &info) != 0 && (std::strstr(info.dli_fname, "libnccl-net") != nullptr ||
                                            std::strstr(info.dli_fname, "libstdc++") != nullptr);
}

void* allocate(std::size_t size, const void* caller) {
    if (counts(caller)) {
        ++allocations;
    }
    void* const memory = std::malloc(size); // NOLINT(*-no-malloc)
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace

void* operator new(std::size_t size) {
    return allocate(size, __builtin_return_address(0));
}
void operator delete(void* memory) noexcept {
    std::free(memory); // NOLINT(*-no-malloc)
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    std::free(memory); // NOLINT(*-no-malloc)
}

namespace nccl_net_test {
namespace {

using NcclNetAllocations = NcclNet;

TEST_F(NcclNetAllocations, AreMadeByTheFirstMessagesOnly) {
    ASSERT_EQ(load(), Result::success);
    const Pair pair = connect();
    Transfer first(net(), pair, {.subs = 2}, true);
    EXPECT_GT(allocations, 0U) << "allocations are not counted";
    run(first); // The pools of the endpoint grow.
    // The number of messages is much greater than the number of requests of a communicator.
    Transfer transfer(net(), pair, {.subs = 2, .length = 300}, true);
    allocations = 0;
    run(transfer);
    EXPECT_EQ(allocations, 0U);
}

} // namespace
} // namespace nccl_net_test
