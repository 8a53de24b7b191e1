// SPDX-License-Identifier: BSD-3-Clause
// A peer that does not keep to the protocol, whether broken or hostile: each thing it says wrong
// ends the channel with EPROTO, and nothing else.
#include <endian.h>

#include <array>
#include <cstring>
#include <string>

#include <rdmabuf/memory_region.hpp>
#include <rdmabuf/queue_pair.hpp>

#include "raw_peer.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::detail::ConnectorProof;
using transport::detail::ConnectResult;
using transport::detail::GrantedChunk;
using transport::detail::Header;
using transport::detail::Hello;
using Said = transport::detail::Kind;

/// The left end of a channel, made by hand.
class Rogue {
  public:
    Rogue()
        : pd_(Context::open_first()),
          cq_(pd_.context(), {.depth = 256}),
          memory_(slots * slot_size),
          region_(pd_, memory_.data(), memory_.size(),
                  {.access = Access::local_write | Access::remote_write}),
          prepared_(std::in_place, pd_,
                    QueuePairOptions{.send_cq = cq_,
                                     .recv_cq = cq_,
                                     .max_recv_wr = slots,
                                     .extended = ExtendedInterface::off}) {
        for (std::size_t i = 1; i < slots; ++i) {
            prepared_->post_recv(entry(i, slot_size), i).throw_if_failed("ibv_post_recv");
        }
        hello.addresses[0] = prepared_->address().encode();
        hello.probe_address = reinterpret_cast<std::uintptr_t>(memory_.data());
        hello.probe_rkey = region_.rkey();
    }

    /// Messages that it has room for.
    static constexpr std::uint32_t room = 6;

    /// What it says of itself first; for tests to change.
    Hello hello = {
        .rails = 1, .eager_limit = 8192, .eager_slots = room, .max_message_size = 1U << 30U};

    /// @param result   what it says of its own queue pair
    /// @param channel  the other end
    /// @return what the listener says
    std::error_code connect(transport::Listener& listener, std::optional<Channel>& channel,
                            ConnectResult result = 0) {
        socket_.emplace(RawPeer::connect(listener.handle().port()));
        const ConnectorProof proof = {.secret = listener.handle().connector_secret()};
        socket_->say(std::as_bytes(std::span(&proof, 1)));
        if (const std::error_code error = listener.try_accept(channel); error != code(EAGAIN)) {
            return error;
        }
        Hello theirs;
        const auto heard = socket_->hear(sizeof theirs);
        EXPECT_EQ(heard.size(), sizeof theirs);
        std::memcpy(&theirs, heard.data(), heard.size());
        socket_->say(std::as_bytes(std::span(&hello, 1)));
        if (const std::error_code error = listener.try_accept(channel); error != code(EAGAIN)) {
            return error;
        }
        self_.emplace(
            std::move(*prepared_).connect(*QueuePairAddress::decode(theirs.addresses[0])));
        socket_->say(std::as_bytes(std::span(&result, 1)));
        return listener.try_accept(channel);
    }

    void say(std::span<const std::byte> bytes) {
        std::copy(bytes.begin(), bytes.end(), memory_.begin());
        self_->post_send(entry(0, bytes.size())).throw_if_failed("ibv_post_send");
        await(IBV_WC_SEND);
    }
    void say(const Header& header, std::span<const std::byte> body = {}) {
        std::vector<std::byte> bytes(sizeof header + body.size());
        std::memcpy(bytes.data(), &header, sizeof header);
        std::copy(body.begin(), body.end(), bytes.begin() + sizeof header);
        say(bytes);
    }
    void say(const Header& header, const std::vector<GrantedChunk>& chunks) {
        say(header, std::as_bytes(std::span(chunks)));
    }
    /// Of its memory, where it can be written to.
    [[nodiscard]] GrantedChunk chunk(std::uint64_t length) const {
        return {.address = hello.probe_address, .length = length, .rkeys = {hello.probe_rkey}};
    }
    void write_immediate(std::uint32_t value) {
        self_->post_write_imm(std::span<const ibv_sge>(), {}, value)
            .throw_if_failed("ibv_post_send");
        await(IBV_WC_RDMA_WRITE);
    }
    /// What the other end said next.
    [[nodiscard]] Header hear() {
        const WorkCompletion completion = await(IBV_WC_RECV);
        Header header;
        std::memcpy(&header, memory_.data() + completion.wr_id * slot_size, sizeof header);
        return header;
    }

    /// Whether the other end has said something that was not heard yet.
    [[nodiscard]] bool has_heard() {
        WorkCompletion completion;
        while (cq_.poll(completion) > 0) {
            kept_.push_back(completion);
        }
        return !kept_.empty();
    }

  private:
    static constexpr std::uint32_t slots = 64;
    static constexpr std::size_t slot_size = 8512;

    [[nodiscard]] ibv_sge entry(std::size_t slot, std::size_t length) {
        return {.addr = reinterpret_cast<std::uintptr_t>(memory_.data() + slot * slot_size),
                .length = static_cast<std::uint32_t>(length),
                .lkey = region_.lkey()};
    }
    WorkCompletion await(ibv_wc_opcode opcode) {
        for (std::size_t i = 0; i < kept_.size(); ++i) {
            if (kept_[i].opcode == opcode) {
                const WorkCompletion found = kept_[i];
                kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
                return found;
            }
        }
        const auto end = std::chrono::steady_clock::now() + 10s;
        WorkCompletion completion;
        while (std::chrono::steady_clock::now() < end) {
            if (cq_.poll(completion) <= 0) {
                continue;
            }
            if (completion.status != IBV_WC_SUCCESS || completion.opcode == opcode) {
                return completion;
            }
            kept_.push_back(completion);
        }
        ADD_FAILURE() << "the other end has said nothing";
        return {};
    }

    ProtectionDomain pd_;
    CompletionQueue cq_;
    std::vector<std::byte> memory_;
    MemoryRegion region_;
    std::optional<PreparedQueuePair> prepared_;
    std::optional<QueuePair> self_;
    std::optional<RawPeer> socket_;
    std::vector<WorkCompletion> kept_;
};

class Protocol : public TransportTest {
  protected:
    static constexpr std::uint32_t length = 20000;

    /// A rogue, and a channel to it.
    void meet_rogue() {
        rogue_.reset();
        right_.reset();
        memory_.reset();
        if (!right_end_) {
            open();
        }
        auto listener = right_end().listen("127.0.0.1");
        ASSERT_TRUE(listener.ok()) << listener.message();
        rogue_.emplace();
        ASSERT_EQ(rogue_->connect(*listener, right_), code(0));
        memory_.emplace(right_memory(1U << 16U));
    }
    void go_on() {
        for (int i = 0; i < 1000; ++i) {
            right().progress();
        }
    }
    /// Whether the channel takes what @p wrong says for what it is.
    template <class Wrong>
    void expect_refused(const char* what, const Wrong& wrong) {
        SCOPED_TRACE(what);
        ASSERT_NO_FATAL_FAILURE(meet_rogue());
        wrong();
        go_on();
        EXPECT_EQ(right().state(), code(EPROTO)) << right().state().message();
        EXPECT_EQ(right().close(), code(EPROTO));
    }

    [[nodiscard]] Request send() {
        Request request;
        EXPECT_EQ(right().isend(memory_->memory(), memory_->data(), length, 5, request), code(0));
        return request;
    }
    [[nodiscard]] Request receive() {
        Request request;
        EXPECT_EQ(right().irecv(memory_->memory(), memory_->data(), length, 5, request), code(0));
        go_on();
        return request;
    }
    /// What the right end calls its send.
    [[nodiscard]] std::uint32_t announced() {
        static_cast<void>(send());
        const Header header = rogue_->hear();
        EXPECT_EQ(header.kind, Said::announce);
        return header.from;
    }
    /// What the right end calls its receive.
    [[nodiscard]] std::uint32_t offered() {
        static_cast<void>(receive());
        const Header header = rogue_->hear();
        EXPECT_EQ(header.kind, Said::offer);
        return header.from;
    }

    std::optional<Rogue> rogue_;
    std::optional<TestMemory> memory_;
};

/// A chunk of that length, somewhere.
GrantedChunk chunk(std::uint64_t length) {
    return {.address = 4096, .length = length, .rkeys = {1}};
}

TEST_F(Protocol, that_is_kept_is_understood) {
    ASSERT_NO_FATAL_FAILURE(meet_rogue());
    const Request received = receive();
    const Header offer = rogue_->hear();
    EXPECT_EQ(offer.kind, Said::offer);
    EXPECT_EQ(offer.length, length);
    EXPECT_EQ(offer.value, 5);
    EXPECT_EQ(offer.seen_messages, 0);
    rogue_->say({.kind = Said::wrote, .operation = offer.from, .length = 9000});
    go_on();
    const Outcome outcome = right().test(received);
    EXPECT_TRUE(outcome.done);
    EXPECT_EQ(outcome.bytes, 9000);

    const std::vector<std::byte> body(100, std::byte{7});
    rogue_->say({.kind = Said::eager, .length = 100, .value = 5}, std::span(body));
    Request request;
    go_on();
    ASSERT_EQ(right().irecv(memory_->memory(), memory_->data(), 100, 5, request), code(0));
    EXPECT_EQ(right().test(request).bytes, 100);
    EXPECT_TRUE(memory_->bytes(0, 100) == body);
    EXPECT_EQ(right().state(), code(0));
}

TEST_F(Protocol, begins_when_both_ends_have_connected) {
    open();
    auto listener = right_end().listen("127.0.0.1");
    ASSERT_TRUE(listener.ok()) << listener.message();
    Rogue rogue;
    EXPECT_EQ(rogue.connect(*listener, right_, EHOSTUNREACH), code(EHOSTUNREACH));
    EXPECT_FALSE(right_);
}

TEST_F(Protocol, does_not_begin_with_a_peer_that_says_impossible_things) {
    open();
    auto listener = right_end().listen("127.0.0.1");
    ASSERT_TRUE(listener.ok()) << listener.message();
    const auto refused = [&](const auto& change) {
        Rogue rogue;
        change(rogue.hello);
        return rogue.connect(*listener, right_);
    };
    EXPECT_EQ(refused([](Hello& hello) { hello.rails = 0; }), code(EPROTO));
    EXPECT_EQ(refused([](Hello& hello) { hello.rails = 5; }), code(EPROTO));
    EXPECT_EQ(refused([](Hello& hello) { hello.eager_slots = 3; }), code(EPROTO));
    EXPECT_EQ(refused([](Hello& hello) { hello.max_message_size = 0; }), code(EPROTO));
    EXPECT_EQ(refused([](Hello& hello) { hello.addresses[0] = {}; }), code(EPROTO));
    EXPECT_EQ(refused([](Hello&) {}), code(0));
}

TEST_F(Protocol, lets_nobody_send_more_than_the_peer_has_room_for) {
    ASSERT_NO_FATAL_FAILURE(meet_rogue());
    std::array<Request, 10> requests;
    for (Request& request : requests) {
        ASSERT_EQ(right().isend(Memory(), nullptr, 0, 5, request), code(0));
    }
    go_on();
    for (std::uint32_t i = 0; i < Rogue::room; ++i) {
        EXPECT_EQ(rogue_->hear().kind, Said::eager);
    }
    EXPECT_FALSE(rogue_->has_heard());
    EXPECT_FALSE(right().test(requests[Rogue::room]).done);
    rogue_->say({.kind = Said::credit, .taken_messages = 3});
    go_on();
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(rogue_->hear().kind, Said::eager);
    }
    EXPECT_FALSE(rogue_->has_heard());
}

TEST_F(Protocol, tells_of_room_when_a_quarter_is_free_and_not_before) {
    ASSERT_NO_FATAL_FAILURE(meet_rogue());
    for (std::uint32_t i = 1; i <= 64; ++i) {
        Request request;
        ASSERT_EQ(right().irecv(Memory(), nullptr, 0, 5, request), code(0));
        rogue_->say({.kind = Said::eager, .value = 5});
        go_on();
        ASSERT_TRUE(right().test(request).done);
        if (i % 16 == 0) {
            const Header header = rogue_->hear();
            EXPECT_EQ(header.kind, Said::credit);
            EXPECT_EQ(header.taken_messages, i);
        }
        ASSERT_FALSE(rogue_->has_heard()) << i;
    }
}

TEST_F(Protocol, messages_that_are_none_are_refused) {
    expect_refused("nothing", [&] { rogue_->say(std::span<const std::byte>()); });
    expect_refused("less than a header",
                   [&] { rogue_->say(std::vector<std::byte>(sizeof(Header) - 1, std::byte{1})); });
    expect_refused("of no kind", [&] { rogue_->say(Header{}); });
    expect_refused("of an unknown kind", [&] { rogue_->say({.kind = static_cast<Said>(9)}); });
    expect_refused("shorter than they say",
                   [&] { rogue_->say({.kind = Said::eager, .length = 1, .value = 5}); });
    expect_refused("longer than they say", [&] {
        rogue_->say({.kind = Said::eager, .value = 5}, std::vector<std::byte>(1));
    });
    expect_refused("that took more than was sent",
                   [&] { rogue_->say({.kind = Said::credit, .taken_messages = 1}); });
    expect_refused("that took more than was told",
                   [&] { rogue_->say({.kind = Said::credit, .taken_control = 1}); });
}

TEST_F(Protocol, answers_to_nothing_are_refused) {
    for (const std::uint32_t name : {0U, 255U, 256U, 0xffffU, 0x10000U}) {
        SCOPED_TRACE(name);
        expect_refused("a grant", [&] {
            rogue_->say(
                {.kind = Said::grant, .rails = 1, .chunks = 1, .operation = name, .length = 1},
                {chunk(1)});
        });
        expect_refused("what was written",
                       [&] { rogue_->say({.kind = Said::wrote, .operation = name}); });
        expect_refused("what was written, told by the device",
                       [&] { rogue_->write_immediate(htobe32(name)); });
        expect_refused("a refusal",
                       [&] { rogue_->say({.kind = Said::refuse, .operation = name}); });
    }
    // Requests there are, but of the other sort, or they do not wait for this.
    expect_refused("a send was written to",
                   [&] { rogue_->say({.kind = Said::wrote, .operation = announced()}); });
    expect_refused("a receive was refused",
                   [&] { rogue_->say({.kind = Said::refuse, .operation = offered()}); });
    expect_refused("a receive was granted something", [&] {
        rogue_->say(
            {.kind = Said::grant, .rails = 1, .chunks = 1, .operation = offered(), .length = 1},
            {chunk(1)});
    });
    expect_refused("a request of before", [&] {
        rogue_->say({.kind = Said::refuse, .operation = announced() + 0x10000});
    });
    expect_refused("a receive that is not offered was written", [&] {
        Request small;
        EXPECT_EQ(right().irecv(memory_->memory(), memory_->data(), 10, 6, small), code(0));
        rogue_->say({.kind = Said::wrote, .operation = small.index | small.generation << 16U});
    });
    expect_refused("more was written than there was room", [&] {
        rogue_->say({.kind = Said::wrote, .operation = offered(), .length = length + 1});
    });
    expect_refused("it was written twice", [&] {
        rogue_->say({.kind = Said::announce, .from = 1, .length = length, .value = 5});
        static_cast<void>(receive());
        const Header grant = rogue_->hear();
        EXPECT_EQ(grant.kind, Said::grant);
        EXPECT_EQ(grant.operation, 1);
        rogue_->say({.kind = Said::wrote, .operation = grant.from});
        rogue_->say({.kind = Said::wrote, .operation = grant.from});
    });
    expect_refused("it was granted twice", [&] {
        const std::uint32_t name = announced();
        for (int i = 0; i < 2; ++i) {
            rogue_->say({.kind = Said::grant,
                         .rails = 1,
                         .chunks = 1,
                         .operation = name,
                         .from = 7,
                         .length = length},
                        {rogue_->chunk(length)});
            go_on();
            EXPECT_EQ(right().state(), code(i == 0 ? 0 : EPROTO));
        }
    });
    expect_refused("it was refused twice", [&] {
        const std::uint32_t name = announced();
        rogue_->say({.kind = Said::refuse, .operation = name});
        rogue_->say({.kind = Said::refuse, .operation = name});
    });
}

// Of grants, and of offers, which look the same.
TEST_F(Protocol, tables_that_make_no_sense_are_refused) {
    struct Table {
        const char* what;
        std::uint8_t rails;
        std::uint16_t chunks;
        std::uint64_t length;
        std::vector<GrantedChunk> behind;
    };
    const std::vector<Table> tables = {
        {"of no chunks", 1, 0, 0, {}},
        {"of more than there can be", 1, 9, 9, std::vector<GrantedChunk>(9, chunk(1))},
        {"for no device", 0, 1, 10, {chunk(10)}},
        {"for more devices than there can be", 5, 1, 10, {chunk(10)}},
        {"without the chunks", 1, 1, 10, {}},
        {"with more of them", 1, 1, 20, {chunk(10), chunk(10)}},
        {"with something behind them", 1, 1, 10, {chunk(10), chunk(10)}},
        {"of less than it says", 1, 1, 10, {chunk(9)}},
        {"of more than it says", 1, 2, 10, {chunk(9), chunk(2)}},
        {"of nothing", 1, 1, 0, {chunk(0)}},
        {"whose sum goes round", 1, 2, 10, {chunk(0xfffffffffffffff8), chunk(18)}},
    };
    for (const Table& table : tables) {
        const Header header = {.rails = table.rails,
                               .chunks = table.chunks,
                               .from = 1,
                               .length = table.length,
                               .value = 5};
        expect_refused((std::string("a grant ") + table.what).c_str(), [&] {
            Header grant = header;
            grant.kind = Said::grant;
            grant.operation = announced();
            rogue_->say(grant, table.behind);
        });
        expect_refused((std::string("an offer ") + table.what).c_str(), [&] {
            Header offer = header;
            offer.kind = Said::offer;
            rogue_->say(offer, table.behind);
        });
    }
    expect_refused("a grant of more than was asked for", [&] {
        rogue_->say({.kind = Said::grant,
                     .rails = 1,
                     .chunks = 1,
                     .operation = announced(),
                     .length = length + 1},
                    {chunk(length + 1)});
    });
    expect_refused("an offer where there is one", [&] {
        for (int i = 0; i < 2; ++i) {
            rogue_->say(
                {.kind = Said::offer, .rails = 1, .chunks = 1, .length = length, .value = 5},
                {chunk(length)});
        }
    });
}

} // namespace
} // namespace rdmabuf::testing
