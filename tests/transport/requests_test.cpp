// SPDX-License-Identifier: BSD-3-Clause
// Invalid requests, and how the completion of a request is reported.
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "stopped_clock.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class Requests : public TransportTest {
  protected:
    void SetUp() override {
        connect();
        mine_.emplace(left_memory(4096));
        theirs_.emplace(right_memory(4096));
    }
    [[nodiscard]] std::error_code send(const Memory& memory, const void* address,
                                       std::size_t length) {
        return left().isend(memory, address, length, 1, request_);
    }
    [[nodiscard]] RemoteMemory remote_memory(Access access = Endpoint::default_access) {
        const auto remote = right_memory(4096, Kind::host, access).memory().remote();
        EXPECT_TRUE(remote.ok());
        return *remote;
    }

    std::optional<TestMemory> mine_;
    std::optional<TestMemory> theirs_;
    Request request_;
};

TEST_F(Requests, outside_their_memory_fail_with_erange) {
    const Memory& memory = mine_->memory();
    EXPECT_EQ(send(memory, mine_->data(), 4097), code(ERANGE));
    EXPECT_EQ(send(memory, mine_->data(1), 4096), code(ERANGE));
    EXPECT_EQ(send(memory, mine_->data() - 1, 1), code(ERANGE));
    EXPECT_EQ(send(memory, mine_->data(), SIZE_MAX), code(ERANGE));
    EXPECT_EQ(send(memory, nullptr, 1), code(ERANGE));
    EXPECT_EQ(left().in_flight(), 0);
}

TEST_F(Requests, without_memory_or_with_that_of_another_endpoint_fail_with_einval) {
    EXPECT_EQ(send(Memory(), mine_->data(), 1), code(EINVAL));
    EXPECT_EQ(send(theirs_->memory(), theirs_->data(), 1), code(EINVAL));
}

TEST_F(Requests, need_memory_with_the_required_access) {
    const TestMemory read_only = left_memory(4096, Kind::dmabuf, Access::local_read);
    EXPECT_EQ(left().irecv(read_only.memory(), read_only.data(), 1, 1, request_), code(EACCES));
    EXPECT_EQ(left().iget(read_only.memory(), read_only.data(), 1, remote_memory(), 0, request_),
              code(EACCES));
    EXPECT_EQ(left().iflush(read_only.memory(), read_only.data(), 1, request_), code(EACCES));
    const RemoteMemory write_only = remote_memory(Access::local_write | Access::remote_write);
    EXPECT_EQ(left().iget(mine_->memory(), mine_->data(), 1, write_only, 0, request_),
              code(EACCES));
    const RemoteMemory unwritable = remote_memory(Access::local_write | Access::remote_read);
    EXPECT_EQ(left().iput(mine_->memory(), mine_->data(), 1, unwritable, 0, request_),
              code(EACCES));
    EXPECT_EQ(left().state(), code(0));
}

TEST_F(Requests, outside_the_memory_of_the_peer_fail_with_erange) {
    const RemoteMemory remote = remote_memory();
    const Memory& memory = mine_->memory();
    EXPECT_EQ(left().iput(memory, mine_->data(), 1, remote, 4096, request_), code(ERANGE));
    EXPECT_EQ(left().iput(memory, mine_->data(), 4096, remote, 1, request_), code(ERANGE));
    EXPECT_EQ(left().iput(memory, mine_->data(), 1, remote, UINT64_MAX, request_), code(ERANGE));
    EXPECT_EQ(left().iget(memory, mine_->data(), 1, RemoteMemory(), 0, request_), code(EINVAL));
    EXPECT_EQ(left().iput(memory, mine_->data(), 0, RemoteMemory(), 0, request_), code(EINVAL));
}

TEST_F(Requests, need_memory_that_the_peer_registered_with_all_devices_of_the_channel) {
    mine_.reset();
    theirs_.reset();
    disconnect();
    use_devices(2);
    connect();
    mine_.emplace(left_memory(4096));
    auto lesser = Endpoint::open(Context::open_first(), resolver_, options_);
    ASSERT_TRUE(lesser.ok()) << lesser.message();
    const TestMemory memory = memory_of(*lesser, 4096);
    const auto remote = memory.memory().remote();
    ASSERT_TRUE(remote.ok()) << remote.message();
    EXPECT_EQ(left().iput(mine_->memory(), mine_->data(), 1, *remote, 0, request_), code(EINVAL));
}

TEST_F(Requests, are_reported_once) {
    Request receive;
    ASSERT_EQ(left().irecv(mine_->memory(), mine_->data(), 10, 1, receive), code(0));
    Request sent;
    ASSERT_EQ(right().isend(theirs_->memory(), theirs_->data(), 10, 1, sent), code(0));
    Request copy = receive;
    EXPECT_EQ(finish(left(), receive).bytes, 10);
    const Completion again = left().test(copy);
    EXPECT_TRUE(again.done);
    EXPECT_EQ(again.error, code(ESTALE));
    // Other requests reuse the state of the completed request.
    Request other;
    for (int i = 0; i < 300; ++i) {
        ASSERT_EQ(left().irecv(mine_->memory(), mine_->data(), 10, 1, other),
                  i < 256 ? code(0) : code(EAGAIN));
    }
    EXPECT_EQ(left().test(copy).error, code(ESTALE));
}

TEST_F(Requests, belong_to_one_channel_and_are_empty_after_their_completion_was_reported) {
    Request receive;
    ASSERT_EQ(left().irecv(mine_->memory(), mine_->data(), 10, 1, receive), code(0));
    EXPECT_EQ(right().test(receive).error, code(EINVAL));
    Request beyond = receive;
    beyond.index += 64; // The pool has grown by one block of 64 requests.
    EXPECT_EQ(left().test(beyond).error, code(EINVAL));
    EXPECT_FALSE(left().test(receive).done);
    ASSERT_EQ(send(mine_->memory(), mine_->data(), 10), code(0));
    EXPECT_EQ(right().test(request_).error, code(EINVAL));
    const Completion completion = left().test(request_);
    EXPECT_TRUE(completion.done);
    EXPECT_EQ(completion.error, code(0));
    EXPECT_EQ(completion.bytes, 10);
    EXPECT_EQ(request_.index, Request::empty_index);
    EXPECT_EQ(left().test(request_).error, code(ESTALE));
    EXPECT_TRUE(left().test(request_).done);
}

TEST_F(Requests, end_with_their_channel) {
    ASSERT_EQ(left().irecv(mine_->memory(), mine_->data(), 10, 1, request_), code(0));
    EXPECT_EQ(left().close(), code(0));
    const Completion completion = left().test(request_);
    EXPECT_TRUE(completion.done);
    EXPECT_EQ(completion.error, code(EBADF));
    EXPECT_EQ(send(mine_->memory(), mine_->data(), 10), code(EBADF));
    EXPECT_EQ(left().notification(), std::nullopt);
    std::array<std::byte, 8> bytes{};
    EXPECT_EQ(left().notification(bytes).code(), code(EBADF));
    EXPECT_EQ(left().close(), code(0));
}

TEST_F(Requests, beyond_the_depth_fail_with_eagain_and_lose_no_message) {
    ASSERT_EQ(send(mine_->memory(), mine_->data(), 10), code(0));
    std::vector<Request> others(options_.depth);
    for (Request& other : others) {
        ASSERT_EQ(right().irecv(theirs_->memory(), theirs_->data(), 10, 2, other), code(0));
    }
    settle();
    EXPECT_EQ(right().in_flight(), options_.depth);
    const RemoteMemory remote = remote_memory();
    Request receive;
    EXPECT_EQ(right().irecv(theirs_->memory(), theirs_->data(), 10, 1, receive), code(EAGAIN));
    EXPECT_EQ(right().isend(theirs_->memory(), theirs_->data(), 4000, 1, receive), code(EAGAIN));
    EXPECT_EQ(right().iput(theirs_->memory(), theirs_->data(), 10, remote, 0, receive),
              code(EAGAIN));
    EXPECT_EQ(receive.index, Request::empty_index);
    Request unblock;
    ASSERT_EQ(left().isend(mine_->memory(), mine_->data(), 10, 2, unblock), code(0));
    EXPECT_EQ(finish(right(), others[0]).bytes, 10);
    EXPECT_EQ(right().in_flight(), options_.depth - 1);
    ASSERT_EQ(right().irecv(theirs_->memory(), theirs_->data(), 10, 1, receive), code(0));
    EXPECT_EQ(finish(right(), receive).bytes, 10);
}

TEST_F(Requests, are_waited_for_without_the_mutex_of_the_program) {
    disconnect();
    std::mutex mutex;
    std::unique_lock lock(mutex);
    options_.mutex = &mutex;
    options_.receive_buffers = 16;
    options_.linger = time_limit;
    connect();
    const TestMemory mine = left_memory(4096);
    const TestMemory theirs = right_memory(4096);
    // Another thread calls `wait`. As soon as it is asleep, this thread calls `step` until the call
    // has returned.
    const auto while_waiting = [&](const auto& wait, const auto& step) {
        std::atomic<pid_t> waiting = 0;
        std::thread thread([&] {
            const std::unique_lock locked(mutex);
            waiting = ::gettid();
            wait();
            waiting = 0;
        });
        lock.unlock();
        EXPECT_TRUE(eventually([&] { return is_asleep(waiting); }));
        EXPECT_TRUE(eventually([&] { return waiting == 0; },
                               [&] {
                                   const std::unique_lock locked(mutex);
                                   step();
                               }));
        thread.join();
        lock.lock();
    };
    Request received;
    ASSERT_EQ(right().irecv(theirs.memory(), theirs.data(), 10, 1, received), code(0));
    while_waiting([&] { EXPECT_EQ(wait(right(), received).bytes, 10); },
                  [&] {
                      if (request_.index == Request::empty_index) {
                          EXPECT_EQ(send(mine.memory(), mine.data(), 10), code(0));
                      }
                      right().progress();
                  });
    // The device of the right end acknowledges all messages when its program makes progress.
    for (std::uint32_t i = 0; i < 2 * options_.receive_buffers; ++i) {
        ASSERT_EQ(send(mine.memory(), mine.data(), 10), code(0));
        ASSERT_EQ(wait(left(), request_).error, code(0));
    }
    while_waiting([&] { EXPECT_EQ(left().close(), code(0)); },
                  [&] {
                      left_end().progress();
                      right().progress();
                  });
    disconnect();
}

// A thread polls the message of another one, and sleeps then.
TEST_F(Requests, of_a_thread_end_its_sleep_while_another_thread_sleeps) {
    disconnect();
    std::mutex mutex;
    std::unique_lock lock(mutex);
    options_.mutex = &mutex;
    options_.heartbeat = 10 * std::chrono::milliseconds(time_limit); // Ten sleeps.
    connect();
    const TestMemory mine = left_memory(4096);
    const TestMemory theirs = right_memory(4096);
    for (int round = 0; round < 20; ++round) {
        SCOPED_TRACE(round);
        const StoppedClock clock; // Only this thread does the work of the devices.
        Request received;
        ASSERT_EQ(right().irecv(theirs.memory(), theirs.data(), 10, 1, received), code(0));
        std::atomic<pid_t> waiting = 0;
        std::thread thread([&] {
            const std::unique_lock locked(mutex);
            waiting = ::gettid();
            EXPECT_EQ(right().wait(received, wait_forever).bytes, 10);
            waiting = 0;
        });
        lock.unlock();
        EXPECT_TRUE(eventually([&] { return is_asleep(waiting); }));
        lock.lock();
        EXPECT_EQ(send(mine.memory(), mine.data(), 10), code(0));
        for (int i = 0; i < 3; ++i) {
            StoppedClock::advance(10ms);
            right_end().progress();
            right_end().wait(0ms);
        }
        lock.unlock();
        const bool ended = eventually([&] { return waiting == 0; });
        thread.join();
        lock.lock();
        ASSERT_TRUE(ended);
        EXPECT_EQ(wait(left(), request_).error, code(0));
    }
    disconnect();
}

} // namespace
} // namespace rdmabuf::testing
