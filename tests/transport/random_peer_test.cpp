// SPDX-License-Identifier: BSD-3-Clause
// A peer that sends random messages: most of them are almost valid, and refer to requests that
// exist. The channel may fail. The endpoint must write only to the memory of posted receives, end
// every request, and stay usable for other peers.
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "raw_connector.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class RandomPeer : public TransportTest {
  protected:
    static constexpr std::size_t size = std::size_t{1} << 17U;
    /// The receives of the channel use only this part of the memory.
    static constexpr std::size_t receive_begin = 32768;
    static constexpr std::size_t receive_size = 40000;

    /// Plays one random sequence of messages and requests.
    void play(std::uint32_t seed) {
        random_.seed(seed);
        numbers_.clear();
        auto listener = right_end().listen("127.0.0.1");
        ASSERT_TRUE(listener.ok()) << listener.message();
        RawConnector raw;
        std::optional<Channel> channel;
        ASSERT_EQ(raw.connect(*listener, channel), code(0));
        memory_->fill(guard_);
        std::vector<Request> requests;
        for (int step = 0; step < 80 && !channel->state(); ++step) {
            if (below(3) == 0) {
                start_request(*channel, requests);
            } else {
                send_message(raw);
            }
            for (std::uint32_t i = below(4); i > 0; --i) {
                channel->progress();
            }
            while (const auto message = raw.try_receive()) {
                remember(*message);
            }
        }
        if (channel->state()) {
            for (const Request& request : requests) {
                ASSERT_TRUE(wait(*channel, request).done);
            }
            EXPECT_EQ(channel->in_flight(), 0);
        }
        static_cast<void>(channel->close());
        const std::vector<std::byte> bytes = memory_->bytes(0, size);
        const auto unchanged = [&](std::size_t begin, std::size_t count) {
            return std::memcmp(bytes.data() + begin, guard_.data() + begin, count) == 0;
        };
        EXPECT_TRUE(unchanged(0, receive_begin));
        EXPECT_TRUE(unchanged(receive_begin + receive_size, size - receive_begin - receive_size));
    }

    std::optional<TestMemory> memory_;
    std::vector<std::byte> guard_ = pattern(size, 55);

  private:
    using Kind = transport::detail::Kind;

    [[nodiscard]] std::uint32_t below(std::uint32_t end) {
        return static_cast<std::uint32_t>(random_() % end);
    }
    template <class T>
    [[nodiscard]] T any_of(std::initializer_list<T> values) {
        return values.begin()[below(static_cast<std::uint32_t>(values.size()))];
    }
    [[nodiscard]] std::uint64_t any_length() {
        return any_of<std::uint64_t>({0, 1, 8, 100, 8192, 8193, 20000, 20000, 20000, 40000, 65536,
                                      std::uint64_t{1} << 32U, UINT64_MAX});
    }
    /// Returns the number of a request of the channel in most cases.
    [[nodiscard]] std::uint32_t any_number() {
        if (!numbers_.empty() && below(8) != 0) {
            return numbers_[below(static_cast<std::uint32_t>(numbers_.size()))];
        }
        return any_of<std::uint32_t>({0, 1, 63, 64, 1U << 20U, Immediate::max_request, UINT32_MAX});
    }
    void start_request(Channel& channel, std::vector<Request>& requests) {
        Request request;
        const Tag tag = below(3);
        const auto length = any_of<std::size_t>({0, 10, 5000, 20000, 40000});
        std::byte* const to = memory_->data(receive_begin);
        switch (below(5)) {
            case 0:
                static_cast<void>(
                    channel.isend(memory_->memory(), memory_->data(), length, tag, request));
                break;
            case 1:
            case 2:
                static_cast<void>(channel.irecv(memory_->memory(), to, length, tag, request));
                break;
            case 3:
                static_cast<void>(
                    channel.irecv_masked(memory_->memory(), to, length, tag, 1, request));
                break;
            default:
                if (!requests.empty()) {
                    static_cast<void>(channel.cancel(
                        requests[below(static_cast<std::uint32_t>(requests.size()))]));
                }
                static_cast<void>(channel.notification());
                break;
        }
        if (request.index != Request::empty_index) {
            requests.push_back(request);
        }
    }
    void send_message(RawConnector& raw) {
        if (below(12) == 0) {
            raw.write_immediate({.fence = below(8) == 0,
                                 .rails = below(8) == 0 ? 2U : 1U,
                                 .request = any_number() & Immediate::max_request});
            return;
        }
        Header header = {.kind = static_cast<Kind>(below(20) == 0 ? below(256) : 1 + below(12)),
                         .rails = static_cast<std::uint8_t>(below(8) == 0 ? below(256) : 1),
                         .received = static_cast<std::uint16_t>(below(16) == 0 ? below(65536) : 0),
                         .number = 0,
                         .value = below(3)};
        std::vector<std::byte> body;
        switch (header.kind) {
            case Kind::eager:
                body.resize(any_of<std::size_t>({0, 10, 1000, 8192, 8193}));
                break;
            case Kind::rts:
            case Kind::cts:
            case Kind::advertisement:
                header.number = header.kind == Kind::cts ? any_number() : 0;
                body = regions(raw);
                break;
            case Kind::notify:
                body.resize(any_of<std::size_t>({0, 8, 512, 513}));
                header.value = below(4) == 0 ? random_() : 0;
                break;
            case Kind::credit:
                header.number = below(4) == 0 ? below(1000) : 0;
                header.value = below(4) == 0 ? below(1000) : 0;
                break;
            case Kind::close:
                if (below(4) != 0) {
                    return;
                }
                break;
            default:
                header.number = any_number();
                header.value = any_length();
                break;
        }
        if (below(16) == 0) {
            body.resize(below(300));
        }
        if (below(16) == 0 && !body.empty()) {
            body[below(static_cast<std::uint32_t>(body.size()))] ^= std::byte{0x80};
        }
        raw.send(header, body);
    }
    /// Returns a body with up to three regions of the peer's memory.
    [[nodiscard]] std::vector<std::byte> regions(const RawConnector& raw) {
        CtsBody body = {.length = any_length(),
                        .request = below(4) == 0 ? any_number() : below(40),
                        .chunks = static_cast<std::uint16_t>(below(4)),
                        .rails = 1};
        std::vector<KeyedChunk> chunks;
        for (std::uint16_t i = 0; i < body.chunks; ++i) {
            KeyedChunk chunk =
                raw.chunk(i + 1 == body.chunks ? body.length - std::uint64_t{i} * 100 : 100);
            chunk.address += std::uint64_t{i} * 100;
            chunks.push_back(chunk);
        }
        return bytes_of(body, chunks);
    }
    void remember(const RawConnector::Message& message) {
        // The other end may have written to the memory of the RawConnector, also to its messages.
        if ((message.header.kind == Kind::rts || message.header.kind == Kind::cts ||
             message.header.kind == Kind::advertisement) &&
            message.body.size() >= sizeof(CtsBody)) {
            numbers_.push_back(message.as<CtsBody>().request);
        }
    }

    std::mt19937 random_; // NOLINT(*-msc51-cpp): play() sets the seed
    /// The numbers of the channel's requests, as its messages contain them.
    std::vector<std::uint32_t> numbers_;
};

TEST_F(RandomPeer, harms_neither_other_memory_nor_other_channels) {
    options_.linger = 10ms;
    options_.ack_timeout = 12;
    options_.retry_count = 2;
    use_devices(1);
    connect();
    memory_.emplace(right_memory(size));
    TestMemory from = left_memory(size);
    const TestMemory to = right_memory(size);
    from.fill(pattern(size));
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        ASSERT_NO_FATAL_FAILURE(play(seed));
        if (seed % 10 == 0) {
            pass(from, to, 100);
            pass(from, to, 100000);
        }
    }
    EXPECT_EQ(right().state(), code(0));
    memory_.reset();
}

} // namespace
} // namespace rdmabuf::testing
