// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "guarded_buffers.hpp"
#include "input.hpp"
#include "raw_connector.hpp"

namespace rdmabuf::testing {

/// A channel whose peer sends any messages: most of them are almost valid, and refer to requests
/// that exist. The bytes of an input decide what the peer and the program do. The channel may fail.
/// The endpoint must write only to the memory of requests in flight, end every request, report why
/// the channel has failed, and stay usable for other peers.
class MaliciousPeerTest : public RawPeerTest {
  protected:
    using Input = softverbs::fuzz::Input;

    MaliciousPeerTest() {
        options_.depth = 16;
        options_.send_depth = 16;
        options_.eager_limit = 1024;
        options_.receive_buffers = 16;
        options_.send_buffers = 8;
        options_.unexpected_limit = 4096;
        options_.notification_limit = 4096;
        options_.linger = 1ms;
        options_.ack_timeout = 12;
        options_.retry_count = 2;
        options_.queue_pairs_per_device = 2;
        options_.probation = 1ms;
    }

    /// Plays one sequence of messages and requests on a new channel.
    void play(Input input) {
        input_ = input;
        const auto memory_kind = below(2) == 0 ? Kind::host : Kind::dmabuf;
        const auto ending = static_cast<Ending>(below(4));
        // The requests of a peer that stops end after this time.
        options_.timeout = ending == Ending::stop ? 20ms : 0ms;
        options_.heartbeat = ending == Ending::stop ? 10ms : 1000ms;
        disconnect();
        const bool other_channel = ending != Ending::stop && below(8) == 0;
        if (other_channel) {
            ASSERT_NO_FATAL_FAILURE(connect());
        }
        ASSERT_NO_FATAL_FAILURE(connect_raw(1 + below(2), 32));
        GuardedBuffers buffers(right_memory(GuardedBuffers::memory_size, memory_kind));
        buffers_ = &buffers;
        const TestMemory source = right_memory(GuardedBuffers::capacity, memory_kind);
        source_ = &source;
        for (int step = 0; step < 64 && !input_.empty() && !channel_->state(); ++step) {
            act();
        }
        end(ending);
        if (other_channel) {
            pass(left_memory(100), right_memory(100), 100);
            pass(left_memory(4096), right_memory(4096), 4096);
            EXPECT_EQ(right().state(), code(0));
        }
        EXPECT_TRUE(source.bytes(0, source.size()) == source_bytes_);
        buffers.check();
        requests_.clear();
        numbers_.clear();
        advertised_.clear();
        channel_.reset();
        raw_.reset();
    }

  private:
    using Wire = transport::detail::Kind;
    enum class Ending : std::uint8_t { close, stop, reset, destroy };

    [[nodiscard]] std::uint32_t below(std::uint32_t end) {
        return input_.take<std::uint8_t>() % end;
    }
    template <class T>
    [[nodiscard]] T any_of(std::initializer_list<T> values) {
        return values.begin()[below(static_cast<std::uint32_t>(values.size()))];
    }
    [[nodiscard]] std::uint64_t any_length() {
        return below(16) == 0 ? input_.take<std::uint64_t>()
                              : any_of<std::uint64_t>({0, 1, 8, 100, 1024, 1025, 4095, 4096, 4097});
    }
    /// Returns the number of a request of the channel in most cases.
    [[nodiscard]] std::uint32_t any_number() {
        const std::uint32_t choice = below(32);
        return choice < numbers_.size() ? numbers_[choice]
               : choice < 28            ? choice
                                        : input_.take<std::uint32_t>();
    }

    void act() {
        switch (below(8)) {
            case 0:
            case 1:
                start_request();
                break;
            case 2:
            case 3:
            case 4:
                send_message();
                break;
            case 5:
                write_by_rdma();
                break;
            case 6:
                use_notifications();
                break;
            default:
                test_request();
                break;
        }
        for (std::uint32_t i = below(4); i > 0; --i) {
            channel_->progress();
        }
        while (const auto message = raw_->try_receive()) {
            remember(*message);
        }
    }

    // The program

    /// A request, and its buffer if it writes to one.
    struct Started {
        Request request;
        std::optional<std::size_t> buffer;
    };

    void start_request() {
        Started started;
        Request& request = started.request;
        const Tag tag = below(3);
        const auto length = any_of<std::size_t>({0, 10, 1024, 1025, 4096});
        const auto buffer = buffers_->unused();
        const std::uint32_t operation = below(10);
        if (operation < 3 || !buffer) {
            static_cast<void>(
                channel_->isend(source_->memory(), source_->data(), length, tag, request));
        } else if (operation < 7) {
            buffers_->begin(*buffer, length);
            started.buffer = buffer;
            static_cast<void>(
                channel_->irecv_masked(buffers_->memory(), buffers_->data(*buffer), length, tag,
                                       operation == 6 ? 1 : transport::full_mask, request));
        } else {
            start_one_sided(started, operation, length, *buffer);
        }
        if (request.index == Request::empty_index) {
            if (started.buffer) {
                buffers_->end(*started.buffer, 0);
            }
        } else {
            requests_.push_back(started);
        }
    }
    void start_one_sided(Started& started, std::uint32_t operation, std::size_t length,
                         std::size_t buffer) {
        Request& request = started.request;
        const auto remote = remote_memory();
        if (!remote) {
            return;
        }
        const std::uint64_t offset = any_length();
        if (operation == 7) {
            static_cast<void>(channel_->iput_notify(source_->memory(), source_->data(), length,
                                                    *remote, offset, 7, request));
            return;
        }
        if (operation == 9 && below(2) == 0) {
            static_cast<void>(channel_->ifence(request));
            return;
        }
        started.buffer = buffer;
        buffers_->begin(buffer, operation == 8 ? length : 8);
        std::byte* const data = buffers_->data(buffer);
        static_cast<void>(
            operation == 8
                ? channel_->iget(buffers_->memory(), data, length, *remote, offset, request)
                : channel_->ifetch_add(buffers_->memory(), reinterpret_cast<std::uint64_t*>(data),
                                       *remote, offset, 1, request));
    }
    /// Decodes a RemoteMemory of the peer, in which some bytes may be changed.
    [[nodiscard]] Result<transport::RemoteMemory> remote_memory() {
        const std::uint64_t length = any_length();
        const KeyedChunk chunk = raw_->chunk(length);
        transport::detail::RemoteTable table = {.chunks = 1, .rails = 1};
        table.regions[0] = chunk;
        const transport::RemoteMemory valid(table, chunk.address, length, Access::remote_read);
        std::vector<std::byte> bytes(valid.bytes().begin(), valid.bytes().end());
        if (below(4) == 0) {
            bytes[input_.take<std::uint16_t>() % bytes.size()] ^= input_.take<std::byte>();
        }
        return transport::RemoteMemory::decode(bytes);
    }
    void use_notifications() {
        std::array<std::byte, transport::max_notification> bytes{};
        const auto size = channel_->notification(std::span(bytes).first(any_of({0U, 8U, 512U})));
        EXPECT_TRUE(size.ok() || size.error() == EAGAIN || size.error() == EMSGSIZE);
        static_cast<void>(channel_->probe(below(3), below(2) == 0 ? 0 : transport::full_mask));
    }
    void test_request() {
        if (requests_.empty()) {
            return;
        }
        const std::size_t i = below(static_cast<std::uint32_t>(requests_.size()));
        if (below(2) == 0) {
            static_cast<void>(channel_->cancel(requests_[i].request));
        } else if (const Completion completion = channel_->test(requests_[i].request);
                   completion.done) {
            ended(requests_[i], completion);
            requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
    void ended(const Started& started, const Completion& completion) {
        if (started.buffer) {
            buffers_->end(*started.buffer,
                          completion.error ? GuardedBuffers::capacity : completion.bytes);
        }
    }

    // The peer

    void send_message() {
        Header header = {.kind = static_cast<Wire>(below(19)),
                         .rails = static_cast<std::uint8_t>(below(8) == 0 ? below(256) : 1),
                         .number = 0,
                         .value = below(3)};
        if (below(16) == 0) {
            header.received = input_.take<std::uint16_t>();
        }
        std::vector<std::byte> body;
        switch (header.kind) {
            case Wire::eager:
                body.resize(any_of<std::size_t>({0, 10, 1000, 1024, 1025}));
                break;
            case Wire::rts:
            case Wire::cts:
            case Wire::advertisement:
                header.number = header.kind == Wire::cts ? any_number() : 0;
                body = regions();
                break;
            case Wire::notify:
                body.resize(any_of<std::size_t>({0, 8, 512, 513}));
                header.value = below(4) == 0 ? input_.take<std::uint64_t>() : 0;
                break;
            case Wire::credit:
                header.number = below(4) == 0 ? input_.take<std::uint16_t>() : 0;
                header.value = below(4) == 0 ? input_.take<std::uint16_t>() : 0;
                break;
            case Wire::rail_down:
            case Wire::rail_recovered:
                header.value = below(4) == 0 ? any_length() : 0;
                break;
            case Wire::rail_replaced:
                append(body, raw_->hello.addresses[1]);
                break;
            case Wire::range_repeated:
                header.rails =
                    transport::detail::RepeatedRails{.rail = 1, .rails = 1 + below(3)}.encode();
                [[fallthrough]];
            default:
                header.number = any_number();
                header.value = any_length();
                break;
        }
        if (below(16) == 0) {
            body.resize(input_.take<std::uint16_t>() % 1200);
        }
        if (below(8) == 0 && !body.empty()) {
            body[input_.take<std::uint16_t>() % body.size()] ^= input_.take<std::byte>();
        }
        raw_->send(header, body);
    }
    /// Returns a body with up to nine regions of the peer's memory. An RtsBody has the same layout.
    [[nodiscard]] std::vector<std::byte> regions() {
        CtsBody body = {.length = any_length(),
                        .request = any_number(),
                        .chunks = any_of<std::uint16_t>({0, 1, 1, 1, 2, 3, 8, 9}),
                        .rails = 1};
        std::vector<KeyedChunk> chunks;
        for (std::uint16_t i = 0; i < body.chunks; ++i) {
            KeyedChunk chunk =
                raw_->chunk(i + 1 == body.chunks ? body.length - std::uint64_t{i} * 100 : 100);
            chunk.address += std::uint64_t{i} * 100;
            chunks.push_back(chunk);
        }
        return bytes_of(body, chunks);
    }
    /// Sends immediate data, and writes to the buffer of a receive if the channel has sent its
    /// rkey.
    void write_by_rdma() {
        const Immediate immediate = {.fence = below(8) == 0,
                                     .rails = below(8) == 0 ? 2U : 1U,
                                     .request = any_number() & Immediate::max_request};
        const auto found = advertised_.find(immediate.request);
        if (found == advertised_.end()) {
            raw_->write_immediate(immediate);
            return;
        }
        const KeyedChunk& chunk = found->second;
        if (!channel_->state()) {
            buffers_->expect_rdma_write(chunk.address);
        }
        const std::vector<std::byte> bytes(std::min<std::uint64_t>(any_length(), chunk.length),
                                           std::byte{0xee});
        raw_->write({.address = chunk.address, .rkey = chunk.rkeys[0]}, bytes,
                    below(8) == 0 ? std::nullopt : std::optional(immediate));
    }
    void remember(const RawConnector::Message& message) {
        if ((message.header.kind != Wire::rts && message.header.kind != Wire::cts &&
             message.header.kind != Wire::advertisement) ||
            message.body.size() < sizeof(CtsBody)) {
            return;
        }
        const auto body = message.as<CtsBody>();
        numbers_.push_back(body.request);
        if (message.header.kind != Wire::rts &&
            message.body.size() == sizeof(CtsBody) + sizeof(KeyedChunk)) {
            KeyedChunk& chunk = advertised_[body.request];
            std::memcpy(&chunk, message.body.data() + sizeof body, sizeof chunk);
        }
    }

    // The end

    void end(Ending ending) {
        if (ending == Ending::reset) {
            raw_->reset_socket();
        } else if (ending == Ending::close) {
            static_cast<void>(channel_->close());
            for (Started& started : requests_) {
                EXPECT_EQ(channel_->test(started.request).error, code(EBADF));
            }
        } else if (ending == Ending::destroy) {
            channel_.reset();
        }
        if (channel_ && channel_->number() != 0) {
            wait_for_all();
        } else {
            for (const Started& started : requests_) {
                ended(started, {.done = true, .error = code(EBADF)});
            }
        }
        // The channel has ended, so the memory of its requests must not change any more.
        if (!channel_ || channel_->state()) {
            buffers_->expect_no_rdma_write();
            if (!advertised_.empty()) {
                const KeyedChunk& chunk = advertised_.begin()->second;
                raw_->write({.address = chunk.address, .rkey = chunk.rkeys[0]},
                            std::array{std::byte{0xdd}}, std::nullopt);
            }
        }
    }
    void wait_for_all() {
        for (Started& started : requests_) {
            const Completion completion = wait(*channel_, started.request, time_limit);
            EXPECT_TRUE(completion.done) << "a request has not ended";
            ended(started, completion);
        }
        EXPECT_EQ(channel_->in_flight(), 0U);
        EXPECT_EQ(static_cast<bool>(channel_->state()), channel_->reason()[0] != '\0');
    }

    Input input_{nullptr, 0};
    GuardedBuffers* buffers_ = nullptr;
    const TestMemory* source_ = nullptr;
    std::vector<std::byte> source_bytes_ = std::vector<std::byte>(GuardedBuffers::capacity);
    std::vector<Started> requests_;
    /// The numbers of the channel's requests, as its messages contain them.
    std::vector<std::uint32_t> numbers_;
    /// The memory of receives to which the peer may write, by the numbers of the requests.
    std::map<std::uint32_t, KeyedChunk> advertised_;
};

} // namespace rdmabuf::testing
