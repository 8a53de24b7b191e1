// SPDX-License-Identifier: BSD-3-Clause
// Requests allocate no memory after a warm-up, in which the pools of the endpoint grow.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include <gtest/gtest.h>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/transport.hpp>

namespace {

std::atomic<bool> counting{false};
std::atomic<unsigned> allocations{0};

/// Returns true for a function of softverbs: allocations of the device are not counted.
bool is_device(const void* caller) {
    Dl_info info{};
    return ::dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "libsoftverbs") != nullptr;
}

void* allocate(std::size_t size, std::size_t alignment, const void* caller) {
    if (counting.load(std::memory_order_relaxed) && !is_device(caller)) {
        ++allocations;
    }
    const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
    void* const memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace

void* operator new(std::size_t size) {
    return allocate(size, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept {
    std::free(memory); // NOLINT(*-no-malloc)
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    std::free(memory); // NOLINT(*-no-malloc)
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
    std::free(memory); // NOLINT(*-no-malloc)
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
    std::free(memory); // NOLINT(*-no-malloc)
}

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using transport::Channel;
using transport::Completion;
using transport::Endpoint;
using transport::Memory;
using transport::RemoteMemory;
using transport::Request;

class Allocations : public ::testing::Test {
  protected:
    static constexpr std::size_t size = 1U << 19U;

    Allocations() {
        auto listener = endpoint_.listen("127.0.0.1");
        auto connector = endpoint_.start_connect(listener->handle());
        while (!left_ || !right_) {
            static_cast<void>(left_ || connector->try_connect(left_));
            static_cast<void>(right_ || listener->try_accept(right_));
        }
    }

    [[nodiscard]] Memory memory(std::size_t offset) const {
        return *endpoint_.register_memory(data(offset), size);
    }
    [[nodiscard]] std::byte* data(std::size_t offset) const {
        return reinterpret_cast<std::byte*>(buffer_.address()) + offset;
    }
    void finish(Channel& channel, Request& request) {
        Completion completion;
        while (!completion.done) {
            completion = channel.test(request);
            left_->progress();
            right_->progress();
        }
        ASSERT_FALSE(completion.error);
    }
    /// Performs one request of each type, each with a message of @p length bytes.
    void work(const Memory& from, const Memory& to, const RemoteMemory& remote,
              std::size_t length) {
        std::array<Request, 5> requests;
        ASSERT_FALSE(right_->irecv(to, data(size), length, 1, requests[0]));
        ASSERT_FALSE(left_->isend(from, data(0), length, 1, requests[1]));
        ASSERT_FALSE(left_->iput_notify(from, data(0), length, remote, 0, 5, requests[2]));
        ASSERT_FALSE(left_->iget(from, data(0), length, remote, 0, requests[3]));
        ASSERT_FALSE(left_->iflush(from, data(0), length, requests[4]));
        finish(*right_, requests[0]);
        for (std::size_t i = 1; i < requests.size(); ++i) {
            finish(*left_, requests[i]);
        }
        ASSERT_TRUE(right_->notification().has_value());
        // A message that arrives before its receive is posted.
        ASSERT_FALSE(left_->isend(from, data(0), length, 2, requests[1]));
        right_->progress();
        ASSERT_FALSE(right_->irecv(to, data(size), length, 2, requests[0]));
        finish(*right_, requests[0]);
        finish(*left_, requests[1]);
    }

    std::shared_ptr<Allocator> memfds_ = make_memfd_exporter();
    Buffer buffer_ = memfds_->allocate(2 * size);
    Endpoint endpoint_ = *Endpoint::open(Context::open_first(), Resolver({memfds_}));
    std::optional<Channel> left_;
    std::optional<Channel> right_;
};

TEST_F(Allocations, do_not_happen_on_the_data_path_after_a_warm_up) {
    counting = true;
    const Memory from = memory(0);
    counting = false;
    EXPECT_GT(allocations.exchange(0), 0U) << "allocations are not counted";
    const Memory to = memory(size);
    const RemoteMemory remote = *to.remote();
    for (int round = 0; round < 20; ++round) {
        counting = round > 0; // In the first round the pools of the endpoint grow.
        for (const unsigned length : {0U, 9U, 5000U, 300000U}) {
            work(from, to, remote, length);
        }
    }
    counting = false;
    EXPECT_EQ(allocations, 0);
}

TEST_F(Allocations, do_not_happen_for_memory_that_is_in_the_cache) {
    const RemoteMemory remote = *memory(size).remote();
    for (int round = 0; round < 20; ++round) {
        counting = round > 0; // In the first round the memory is registered and the pools grow.
        for (const unsigned length : {9U, 5000U, 300000U}) {
            std::array<Request, 4> requests;
            ASSERT_FALSE(right_->irecv(data(size), length, 1, requests[0]));
            ASSERT_FALSE(left_->isend(data(0), length, 1, requests[1]));
            finish(*right_, requests[0]);
            finish(*left_, requests[1]);
            ASSERT_FALSE(left_->iput(data(0), length, remote, 0, requests[2]));
            ASSERT_FALSE(left_->iget(data(0), length, remote, 0, requests[3]));
            finish(*left_, requests[2]);
            finish(*left_, requests[3]);
        }
    }
    counting = false;
    EXPECT_EQ(allocations, 0);
}

} // namespace
} // namespace rdmabuf
