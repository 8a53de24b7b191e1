// SPDX-License-Identifier: BSD-3-Clause
// Requests that cannot be, and what is told of requests.
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
    [[nodiscard]] RemoteMemory offered(Access access = Endpoint::default_access) {
        const auto remote = right_memory(4096, Kind::host, access).memory().remote();
        EXPECT_TRUE(remote.ok());
        return *remote;
    }

    std::optional<TestMemory> mine_;
    std::optional<TestMemory> theirs_;
    Request request_;
};

TEST_F(Requests, outside_their_memory_are_refused) {
    const Memory& memory = mine_->memory();
    EXPECT_EQ(send(memory, mine_->data(), 4097), code(ERANGE));
    EXPECT_EQ(send(memory, mine_->data(1), 4096), code(ERANGE));
    EXPECT_EQ(send(memory, mine_->data() - 1, 1), code(ERANGE));
    EXPECT_EQ(send(memory, mine_->data(), SIZE_MAX), code(ERANGE));
    EXPECT_EQ(send(memory, nullptr, 1), code(ERANGE));
    EXPECT_EQ(left().in_flight(), 0);
}

TEST_F(Requests, without_memory_have_to_be_empty) {
    EXPECT_EQ(send(Memory(), mine_->data(), 1), code(EINVAL));
    EXPECT_EQ(send(Memory(), nullptr, 0), code(0));
    Request receive;
    ASSERT_EQ(right().irecv(Memory(), nullptr, 0, 1, receive), code(0));
    EXPECT_EQ(finish(right(), receive).error, code(0));
    EXPECT_EQ(finish(left(), request_).error, code(0));
}

TEST_F(Requests, of_another_endpoints_memory_are_refused) {
    EXPECT_EQ(send(theirs_->memory(), theirs_->data(), 1), code(EINVAL));
}

TEST_F(Requests, need_the_access_their_memory_was_registered_for) {
    const TestMemory read_only = left_memory(4096, Kind::dmabuf, Access::local_read);
    EXPECT_EQ(left().irecv(read_only.memory(), read_only.data(), 1, 1, request_), code(EACCES));
    EXPECT_EQ(left().iget(read_only.memory(), read_only.data(), 1, offered(), 0, request_),
              code(EACCES));
    EXPECT_EQ(left().iflush(read_only.memory(), read_only.data(), 1, request_), code(EACCES));
    const RemoteMemory write_only = offered(Access::local_write | Access::remote_write);
    EXPECT_EQ(left().iget(mine_->memory(), mine_->data(), 1, write_only, 0, request_),
              code(EACCES));
    const RemoteMemory unwritable = offered(Access::local_write | Access::remote_read);
    EXPECT_EQ(left().iput(mine_->memory(), mine_->data(), 1, unwritable, 0, request_),
              code(EACCES));
    EXPECT_EQ(left().state(), code(0));
}

TEST_F(Requests, outside_the_peers_memory_are_refused) {
    const RemoteMemory remote = offered();
    const Memory& memory = mine_->memory();
    EXPECT_EQ(left().iput(memory, mine_->data(), 1, remote, 4096, request_), code(ERANGE));
    EXPECT_EQ(left().iput(memory, mine_->data(), 4096, remote, 1, request_), code(ERANGE));
    EXPECT_EQ(left().iput(memory, mine_->data(), 1, remote, UINT64_MAX, request_), code(ERANGE));
    EXPECT_EQ(left().iget(memory, mine_->data(), 1, RemoteMemory(), 0, request_), code(EINVAL));
    EXPECT_EQ(left().iput(memory, mine_->data(), 0, RemoteMemory(), 0, request_), code(EINVAL));
}

TEST_F(Requests, reach_only_what_is_registered_with_as_many_devices) {
    mine_.reset();
    theirs_.reset();
    disconnect();
    use_devices(2);
    connect();
    mine_.emplace(left_memory(4096));
    auto lesser = Endpoint::open(Context::open_first(), resolver_, options_);
    ASSERT_TRUE(lesser.ok()) << lesser.message();
    const TestMemory memory(*lesser, *memfds_, Kind::host, 4096);
    const auto remote = memory.memory().remote();
    ASSERT_TRUE(remote.ok()) << remote.message();
    EXPECT_EQ(left().iput(mine_->memory(), mine_->data(), 1, *remote, 0, request_), code(EINVAL));
}

TEST_F(Requests, are_told_of_once) {
    ASSERT_EQ(send(mine_->memory(), mine_->data(), 10), code(0));
    EXPECT_TRUE(left().test(request_).done);
    const Outcome again = left().test(request_);
    EXPECT_TRUE(again.done);
    EXPECT_EQ(again.error, code(ESTALE));
    // Its place is another's now.
    Request other;
    for (int i = 0; i < 300; ++i) {
        ASSERT_EQ(left().irecv(mine_->memory(), mine_->data(), 10, 1, other),
                  i < 256 ? code(0) : code(EAGAIN));
    }
    EXPECT_EQ(left().test(request_).error, code(ESTALE));
}

TEST_F(Requests, belong_to_one_channel) {
    ASSERT_EQ(send(mine_->memory(), mine_->data(), 10), code(0));
    EXPECT_EQ(right().test(request_).error, code(EINVAL));
    EXPECT_EQ(left().test({}).error, code(EINVAL));
    Request beyond = request_;
    beyond.index = options_.depth;
    EXPECT_EQ(left().test(beyond).error, code(EINVAL));
    EXPECT_EQ(left().test(request_).error, code(0));
}

TEST_F(Requests, end_with_their_channel) {
    ASSERT_EQ(left().irecv(mine_->memory(), mine_->data(), 10, 1, request_), code(0));
    EXPECT_EQ(left().close(), code(0));
    const Outcome outcome = left().test(request_);
    EXPECT_TRUE(outcome.done);
    EXPECT_EQ(outcome.error, code(EBADF));
    EXPECT_EQ(send(mine_->memory(), mine_->data(), 10), code(EBADF));
    EXPECT_EQ(left().notification(), std::nullopt);
    EXPECT_EQ(left().close(), code(0));
}

TEST_F(Requests, that_are_too_many_lose_no_message) {
    ASSERT_EQ(send(mine_->memory(), mine_->data(), 10), code(0));
    Request other;
    for (std::uint32_t i = 0; i < options_.depth; ++i) {
        ASSERT_EQ(right().irecv(theirs_->memory(), theirs_->data(), 10, 2, other), code(0));
    }
    right().progress();
    Request receive;
    EXPECT_EQ(right().irecv(theirs_->memory(), theirs_->data(), 10, 1, receive), code(EAGAIN));
    Request unblock;
    ASSERT_EQ(left().isend(mine_->memory(), mine_->data(), 10, 2, unblock), code(0));
    const auto end = std::chrono::steady_clock::now() + 10s;
    for (Request done = {.channel = other.channel, .generation = 0, .index = 0};
         right().in_flight() == options_.depth && std::chrono::steady_clock::now() < end;
         done.index = (done.index + 1) % options_.depth) {
        static_cast<void>(right().test(done));
        left().progress();
    }
    ASSERT_EQ(right().irecv(theirs_->memory(), theirs_->data(), 10, 1, receive), code(0));
    EXPECT_EQ(finish(right(), receive).bytes, 10);
}

TEST_F(Requests, can_be_awaited_together) {
    std::array<Request, 3> receives;
    for (std::size_t i = 0; i < receives.size(); ++i) {
        ASSERT_EQ(right().irecv(theirs_->memory(), theirs_->data(), 10, i, receives[i]), code(0));
    }
    ASSERT_EQ(left().isend(mine_->memory(), mine_->data(), 10, 1, request_), code(0));
    const std::array<transport::Pending, 3> pending = {
        {{.channel = &right(), .request = receives[0]},
         {.channel = &right(), .request = receives[1]},
         {.channel = &right(), .request = receives[2]}}};
    Outcome outcome;
    EXPECT_EQ(transport::wait_any(pending, outcome, 20s), 1);
    EXPECT_EQ(outcome.bytes, 10);
    EXPECT_EQ(transport::wait_any(std::span(pending).first(1), outcome, 1ms), 1);
    EXPECT_FALSE(outcome.done);
    EXPECT_EQ(transport::wait_any({}, outcome, wait_forever), 0);
}

} // namespace
} // namespace rdmabuf::testing
