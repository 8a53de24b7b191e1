// SPDX-License-Identifier: BSD-3-Clause
// Verbs calls and memory fail once, while each protocol moves data.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "features_fixture.hpp"
#include "poll_counter.hpp"
#include "post_filter.hpp"
#include "prepared_channels_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::TransferEntry;
using transport::Visibility;

enum class Operation : std::uint8_t {
    /// The receive is posted first. If it is long, it is advertised.
    receive_and_send,
    /// The message arrives before its receive is posted.
    send_and_receive,
    put,
    put_list,
    put_notify,
    put_and_fence,
    get,
    fetch_add,
    flush,
};

/// A protocol of the transport: an operation, and the conditions under which it uses the protocol.
struct Protocol {
    const char* name;
    Operation operation;
    std::size_t length;
    TestMemory::Kind right_memory = TestMemory::Kind::host;
    bool read_long_messages = true;
    std::size_t devices = 1;
    /// Maximum length of a work request.
    std::uint32_t max_message = 1U << 30U;
    /// The channel is connected by exchanged addresses.
    bool prepared = false;
    /// True if a device accesses the memory of the requests at this end.
    bool device_accesses_left = true;
    bool device_accesses_right = true;
    /// A kind of work request that only this protocol and protocols like it use.
    ibv_wr_opcode opcode = IBV_WR_SEND;
};
void PrintTo(const Protocol& protocol, // NOLINT(readability-identifier-naming)
             std::ostream* out) {
    *out << protocol.name;
}

constexpr auto dmabuf = TestMemory::Kind::dmabuf;
constexpr std::size_t length = 100000;
constexpr auto protocols = std::to_array<Protocol>({
    {.name = "eager_inline",
     .operation = Operation::receive_and_send,
     .length = 50,
     .device_accesses_left = false,
     .device_accesses_right = false},
    {.name = "eager_copied",
     .operation = Operation::receive_and_send,
     .length = 900,
     .device_accesses_left = false,
     .device_accesses_right = false},
    {.name = "eager_gathered",
     .operation = Operation::receive_and_send,
     .length = 5000,
     .device_accesses_right = false},
    {.name = "eager_unexpected",
     .operation = Operation::send_and_receive,
     .length = 5000,
     .device_accesses_right = false},
    {.name = "eager_to_device_memory",
     .operation = Operation::receive_and_send,
     .length = 5000,
     .right_memory = dmabuf},
    {.name = "advertised",
     .operation = Operation::receive_and_send,
     .length = length,
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM},
    {.name = "advertised_with_fin",
     .operation = Operation::receive_and_send,
     .length = length,
     .max_message = 32768,
     .opcode = IBV_WR_RDMA_WRITE},
    {.name = "cts",
     .operation = Operation::send_and_receive,
     .length = length,
     .read_long_messages = false,
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM},
    {.name = "rget",
     .operation = Operation::send_and_receive,
     .length = length,
     .opcode = IBV_WR_RDMA_READ},
    {.name = "put_short",
     .operation = Operation::put,
     .length = 100,
     .device_accesses_left = false,
     .opcode = IBV_WR_RDMA_WRITE},
    {.name = "put", .operation = Operation::put, .length = length, .opcode = IBV_WR_RDMA_WRITE},
    {.name = "put_list",
     .operation = Operation::put_list,
     .length = length,
     .opcode = IBV_WR_RDMA_WRITE},
    {.name = "put_notify",
     .operation = Operation::put_notify,
     .length = length,
     .opcode = IBV_WR_RDMA_WRITE},
    {.name = "put_notify_inline",
     .operation = Operation::put_notify,
     .length = 100,
     .device_accesses_left = false,
     .opcode = IBV_WR_RDMA_WRITE},
    {.name = "put_notify_short",
     .operation = Operation::put_notify,
     .length = 4000,
     .devices = 2,
     .opcode = IBV_WR_RDMA_WRITE},
    {.name = "put_and_fence",
     .operation = Operation::put_and_fence,
     .length = length,
     .opcode = IBV_WR_RDMA_WRITE},
    {.name = "get", .operation = Operation::get, .length = length, .opcode = IBV_WR_RDMA_READ},
    {.name = "fetch_add",
     .operation = Operation::fetch_add,
     .length = 8,
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD},
    {.name = "flush",
     .operation = Operation::flush,
     .length = 64,
     .right_memory = dmabuf,
     .devices = 2,
     .device_accesses_left = false,
     .opcode = IBV_WR_RDMA_READ},
    {.name = "striped_advertised",
     .operation = Operation::receive_and_send,
     .length = length,
     .devices = 2,
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM},
    {.name = "striped_rget_to_device_memory",
     .operation = Operation::send_and_receive,
     .length = length,
     .right_memory = dmabuf,
     .devices = 2,
     .opcode = IBV_WR_RDMA_READ},
    {.name = "striped_put_notify",
     .operation = Operation::put_notify,
     .length = length,
     .devices = 2,
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM},
    {.name = "striped_put_and_fence",
     .operation = Operation::put_and_fence,
     .length = length,
     .devices = 2,
     .opcode = IBV_WR_RDMA_WRITE},
    {.name = "prepared_rget",
     .operation = Operation::send_and_receive,
     .length = length,
     .prepared = true,
     .opcode = IBV_WR_RDMA_READ},
});

class TrafficFaults : public PreparedChannels, public ::testing::WithParamInterface<Protocol> {
  protected:
    static constexpr std::size_t memory_size = 2 * length;
    /// The requests use the bytes from `begin` to `begin + GetParam().length` of both memories.
    static constexpr std::size_t begin = 4096;
    static constexpr std::uint64_t number = 7;

    TrafficFaults() {
        options_.ack_timeout = 12; // 17 ms
        options_.retry_count = 7;
        options_.min_fragment = 4096;
        options_.receive_buffers = 32;
        options_.read_long_messages = GetParam().read_long_messages;
        options_.heartbeat = 20ms;
    }
    void SetUp() override {
        if (GetParam().devices > 1) {
            use_devices(GetParam().devices);
        }
        ibv_port_attr port = roce_port();
        port.max_msg_sz = GetParam().max_message;
        for (unsigned device = 0; device < devices_; ++device) {
            set_port(port, 1, device);
        }
        open_with_memory();
        connect_channel();
    }
    void TearDown() override {
        visible_.reset();
        from_.reset();
        to_.reset();
        disconnect();
    }

    void open_with_memory() {
        TearDown();
        open();
        constexpr Access all = Access::local_write | Access::remote_write | Access::remote_read |
                               Access::remote_atomic;
        from_.emplace(left_memory(memory_size, Kind::host, all));
        to_.emplace(right_memory(memory_size, GetParam().right_memory, all));
        if (GetParam().right_memory == dmabuf) {
            auto visible = right_end().register_memory(to_->data(), memory_size, all,
                                                       Visibility::running_kernel);
            ASSERT_TRUE(visible.ok()) << visible.message();
            visible_.emplace(*std::move(visible));
        }
        left_bytes_ = pattern(memory_size, 1);
        right_bytes_ = pattern(memory_size, 2);
        from_->fill(left_bytes_);
        to_->fill(right_bytes_);
        remote_ = to_->memory().remote().value();
    }
    void connect_channel() {
        left_.reset();
        right_.reset();
        if (GetParam().prepared) {
            connect_ends();
        } else {
            transport::Listener listener = listen();
            ASSERT_NO_FATAL_FAILURE(connect_to(listener));
        }
        // The handshake of a prepared channel ends with the first message.
        exchange();
    }
    /// Sends a message of 0 bytes in both directions.
    void exchange() {
        for (int i = 0; i < 2; ++i) {
            Request receive;
            Request send;
            ASSERT_EQ(right().irecv(to_->memory(), to_->data(), 0, 99, receive), code(0));
            ASSERT_EQ(left().isend(from_->memory(), from_->data(), 0, 99, send), code(0));
            ASSERT_EQ(finish(right(), receive).error, code(0)) << right().reason();
            ASSERT_EQ(finish(left(), send).error, code(0)) << left().reason();
            std::swap(left_, right_);
            std::swap(left_end_, right_end_);
            std::swap(from_, to_);
        }
    }

    /// A request of the protocol, and its result.
    struct Started {
        Channel* channel;
        Request request{};
        bool done = false;
        std::error_code error{};
    };
    void start(Channel& channel, std::error_code error, const Request& request) {
        started_.push_back({&channel, request, static_cast<bool>(error), error});
    }
    [[nodiscard]] const Memory& right_memory_of_requests() const {
        return visible_ ? *visible_ : to_->memory();
    }
    void receive() {
        Request request;
        start(right(),
              right().irecv(right_memory_of_requests(), to_->data(begin), GetParam().length, 1,
                            request),
              request);
    }
    void send() {
        Request request;
        start(left(),
              left().isend(from_->memory(), from_->data(begin), GetParam().length, 1, request),
              request);
    }
    void start_all() {
        started_.clear();
        start_requests();
    }
    /// Starts the requests of the protocol.
    void start_requests() {
        const std::size_t size = GetParam().length;
        Request request;
        auto* const result = reinterpret_cast<std::uint64_t*>(from_->data(begin));
        switch (GetParam().operation) {
            case Operation::receive_and_send:
                receive();
                settle();
                send();
                return;
            case Operation::send_and_receive:
                send();
                settle();
                receive();
                return;
            case Operation::put_and_fence:
            case Operation::put:
                start(
                    left(),
                    left().iput(from_->memory(), from_->data(begin), size, remote_, begin, request),
                    request);
                if (GetParam().operation == Operation::put_and_fence) {
                    Request fence;
                    start(left(), left().ifence(fence), fence);
                }
                return;
            case Operation::put_notify:
                start(left(),
                      left().iput_notify(from_->memory(), from_->data(begin), size, remote_, begin,
                                         number, request),
                      request);
                return;
            case Operation::get:
                start(
                    left(),
                    left().iget(from_->memory(), from_->data(begin), size, remote_, begin, request),
                    request);
                return;
            case Operation::put_list:
                for (std::size_t i = 0; i < list_.size(); ++i) {
                    const std::size_t part = size / list_.size();
                    list_.at(i) = {.memory = &from_->memory(),
                                   .address = from_->data(begin + i * part),
                                   .length = part,
                                   .remote = &remote_,
                                   .offset = begin + i * part};
                }
                start(left(), left().iput_list(list_, request), request);
                return;
            case Operation::fetch_add:
                start(left(),
                      left().ifetch_add(from_->memory(), result, remote_, begin, number, request),
                      request);
                return;
            case Operation::flush:
                start(right(),
                      right().iflush(right_memory_of_requests(), to_->data(begin), size, request),
                      request);
                return;
        }
    }
    [[nodiscard]] bool reads() const { return GetParam().operation == Operation::get; }
    [[nodiscard]] bool is_atomic() const { return GetParam().operation == Operation::fetch_add; }
    [[nodiscard]] std::uint64_t old_value() const {
        std::uint64_t value = 0;
        std::memcpy(&value, right_bytes_.data() + begin, sizeof value);
        return value;
    }

    [[nodiscard]] const TestMemory& from_of(const Channel& channel) const {
        return &channel == &*left_ ? *from_ : *to_;
    }
    [[nodiscard]] bool is_broken() { return left().state() || right().state(); }
    /// Makes progress until all requests have ended and, if one end has failed, both ends have.
    void finish_all() {
        notified_ = GetParam().operation != Operation::put_notify;
        const auto finished = [&] {
            return std::ranges::all_of(started_, &Started::done) &&
                   (is_broken() ? left().state() && right().state() : notified_);
        };
        const auto step = [&] {
            for (Started& started : started_) {
                if (started.done) {
                    continue;
                }
                const Completion completion = started.channel->test(started.request);
                started.done = completion.done;
                started.error = completion.error;
                // A request that has ended with an error ends its channel.
                if (completion.done && completion.error) {
                    EXPECT_NE(started.channel->state(), code(0));
                }
            }
            if (GetParam().prepared && is_broken() &&
                std::ranges::all_of(started_, &Started::done)) {
                // Without a socket, an end without requests does not detect that its peer failed.
                for (Channel* const channel : {&left(), &right()}) {
                    if (!channel->state() && channel->in_flight() == 0) {
                        Request request;
                        start(*channel,
                              channel->irecv(from_of(*channel).memory(), from_of(*channel).data(),
                                             0, 98, request),
                              request);
                    }
                }
            }
            left_end().progress();
            right_end().progress();
            // Requests notifications of completions, and does not sleep.
            left_end().wait(0ms);
            right_end().wait(0ms);
            if (!notified_) {
                if (const auto value = right().notification()) {
                    EXPECT_EQ(*value, number);
                    notified_ = true;
                }
            }
        };
        EXPECT_TRUE(eventually(finished, step))
            << "the requests have not ended: " << left().reason() << " / " << right().reason();
    }
    /// Returns the receive of the message, which is the first request of the right end.
    [[nodiscard]] const Started& data_receive() const {
        return *std::ranges::find(started_, &*right_, &Started::channel);
    }
    /// Returns true if the data must have been transferred.
    [[nodiscard]] bool transferred() const {
        switch (GetParam().operation) {
            case Operation::receive_and_send:
            case Operation::send_and_receive:
                return !data_receive().error;
            case Operation::put_notify:
                return notified_ || !started_.at(0).error;
            default:
                return !started_.at(0).error;
        }
    }
    /// Checks the bytes of both memories, and makes the memories ready for the next requests.
    void check_bytes() {
        const std::size_t size = GetParam().length;
        const auto offset = static_cast<std::ptrdiff_t>(begin);
        const auto range = [&](std::vector<std::byte>& bytes) {
            return std::span(bytes).subspan(begin, size);
        };
        if (std::getenv("SOFTVERBS_DISORDER") != nullptr) {
            settle(); // The data of RDMA writes can become visible 2 ms after their completion.
        }
        std::vector<std::byte> left = from_->bytes(0, memory_size);
        std::vector<std::byte> right = to_->bytes(0, memory_size);
        if (transferred() && is_atomic()) {
            std::uint64_t result = 0;
            std::uint64_t value = 0;
            std::memcpy(&result, left.data() + begin, sizeof result);
            std::memcpy(&value, right.data() + begin, sizeof value);
            EXPECT_EQ(result, old_value());
            EXPECT_EQ(value, old_value() + number);
        } else if (transferred() && GetParam().operation != Operation::flush) {
            EXPECT_TRUE(std::ranges::equal(range(left), range(right)));
        }
        // After its requests have ended, memory is not written to.
        settle();
        EXPECT_TRUE(from_->bytes(begin, size) == from_bytes(left, size));
        EXPECT_TRUE(to_->bytes(begin, size) == from_bytes(right, size));
        // All bytes are as before, except those of the requests.
        if (reads() || is_atomic()) {
            std::copy_n(left_bytes_.begin() + offset, size, left.begin() + offset);
        }
        if (!reads()) {
            std::copy_n(right_bytes_.begin() + offset, size, right.begin() + offset);
        }
        EXPECT_TRUE(left == left_bytes_);
        EXPECT_TRUE(right == right_bytes_);
        from_->fill(left_bytes_);
        to_->fill(right_bytes_);
    }
    static std::vector<std::byte> from_bytes(const std::vector<std::byte>& all, std::size_t size) {
        return {all.begin() + begin, all.begin() + static_cast<std::ptrdiff_t>(begin + size)};
    }
    /// Expects that the requests have succeeded, or that they and both ends have failed. Then
    /// another message arrives, after both ends are connected again if necessary.
    void check_all(bool endpoint_fails) {
        check_bytes();
        if (!is_broken()) {
            for (const Started& started : started_) {
                EXPECT_EQ(started.error, code(0)) << started.error.message();
            }
            exchange();
            return;
        }
        finish_all(); // One end may have failed just after the requests had ended.
        for (Channel* const channel : {&left(), &right()}) {
            EXPECT_NE(std::string_view(channel->reason()), "");
            EXPECT_EQ(channel->in_flight(), 0);
        }
        if (endpoint_fails) {
            open_with_memory();
        }
        connect_channel();
    }

    std::optional<TestMemory> from_;
    std::optional<TestMemory> to_;
    /// The memory of the right end, if it is device memory that a running kernel reads.
    std::optional<Memory> visible_;
    std::vector<std::byte> left_bytes_;
    std::vector<std::byte> right_bytes_;
    RemoteMemory remote_;
    std::array<TransferEntry, 4> list_{};
    std::vector<Started> started_;
    bool notified_ = true;
};

INSTANTIATE_TEST_SUITE_P(of, TrafficFaults, ::testing::ValuesIn(protocols),
                         [](const auto& value) { return std::string(value.param.name); });

TEST_P(TrafficFaults, of_no_kind_end_no_request) {
    forget_calls();
    start_all();
    finish_all();
    EXPECT_TRUE(std::ranges::any_of(record().sends, [](const Send& send) {
        return send.request.opcode == GetParam().opcode;
    })) << "the protocol was not used";
    check_all(false);
    EXPECT_FALSE(is_broken());
}

TEST_P(TrafficFaults, of_a_verbs_call_end_the_requests_or_have_no_effect) {
    struct Verb {
        const char* name;
        /// The maximum number of calls that fail. Unlike the other verbs, ibv_req_notify_cq and
        /// ibv_get_cq_event are called any number of times.
        unsigned most;
        /// The failure ends all channels of the endpoint, also new ones.
        bool ends_endpoint;
    };
    constexpr std::array<Verb, 6> verbs = {{{"ibv_post_send", 100, false},
                                            {"ibv_post_recv", 100, false},
                                            {"ibv_post_srq_recv", 100, true},
                                            {"ibv_modify_qp", 100, false},
                                            {"ibv_req_notify_cq", 3, false},
                                            {"ibv_get_cq_event", 3, false}}};
    for (const Verb& verb : verbs) {
        for (const int error : {ENOMEM, EINVAL}) {
            bool happened = true;
            for (unsigned n = 1; happened && n <= verb.most; ++n) {
                SCOPED_TRACE(std::string(verb.name) + "#" + std::to_string(n) + "=" +
                             std::to_string(error));
                settle();
                ASSERT_EQ(softverbs_fail_call(verb.name, n, error), 0);
                start_all();
                finish_all();
                happened = all_failed();
                softverbs_clear_faults();
                ASSERT_NO_FATAL_FAILURE(check_all(verb.ends_endpoint));
                if (HasFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(TrafficFaults, of_polling_end_the_requests) {
    for (unsigned n = 1; n <= 6; ++n) {
        SCOPED_TRACE(n);
        {
            // softverbs_fail_call() lets no call of ibv_poll_cq(3) fail.
            PollCounter fault(right_end().protection_domain().context(),
                              [left = n](ibv_cq* cq, int count, ibv_wc* wc) mutable {
                                  return --left == 0 ? -1 : PollCounter::poll(cq, count, wc);
                              });
            start_all();
            finish_all();
        }
        ASSERT_NO_FATAL_FAILURE(check_all(true));
    }
}

TEST_P(TrafficFaults, of_revoked_memory_end_the_requests) {
    for (const bool of_left : {true, false}) {
        SCOPED_TRACE(of_left);
        const Memory& memory = of_left ? from_->memory() : right_memory_of_requests();
        for (std::size_t device = 0; device < devices_; ++device) {
            ASSERT_EQ(softverbs_revoke_mr(memory.state()->lease.registration().native(device)), 0);
        }
        start_all();
        finish_all();
        const bool fails =
            of_left ? GetParam().device_accesses_left : GetParam().device_accesses_right;
        EXPECT_EQ(is_broken(), fails) << left().reason() << " / " << right().reason();
        // SOFTVERBS_DISORDER can delay a NAK so much that the end of the peer arrives before it.
        if (fails && std::getenv("SOFTVERBS_DISORDER") == nullptr) {
            EXPECT_TRUE(std::ranges::any_of(started_, [](const Started& started) {
                return started.error == code(EFAULT) || started.error == code(EACCES);
            }));
        }
        ASSERT_NO_FATAL_FAILURE(check_all(true));
        if (!fails) {
            open_with_memory();
            connect_channel();
        }
    }
}

using FailedCalls = FeaturesTest;

// If the call fails, the queue pair still accepts the RDMA writes of the peer. If it fails three
// times, the queue pair is destroyed.
TEST_F(FailedCalls, of_moving_a_queue_pair_to_the_error_state_do_not_let_the_peer_write) {
    options_.timeout = 1s;
    constexpr std::size_t size = 200000;
    for (const unsigned failures : {1U, 3U}) {
        SCOPED_TRACE(failures);
        connect_with_memory();
        const Request late = receive(size);
        settle(); // The receive is advertised.
        for (unsigned nth = 1; nth <= failures; ++nth) {
            ASSERT_EQ(softverbs_fail_call("ibv_modify_qp", nth, ENOMEM), 0);
        }
        EXPECT_EQ(wait(right(), late).error, code(ETIMEDOUT));
        EXPECT_TRUE(all_failed());
        const Request sent = send(size);
        EXPECT_NE(finish(left(), sent).error, code(0));
        EXPECT_TRUE(to_->bytes(0, size) == std::vector<std::byte>(size));
        disconnect_all();
    }
}

TEST_F(FailedCalls, of_one_device_do_not_end_a_receive_before_its_flush) {
    use_devices(2);
    connect_with_memory();
    constexpr std::size_t size = 200000;
    {
        const TestMemory device = right_memory(size, Kind::dmabuf);
        const auto memory = right_end().register_memory(
            device.data(), size, Endpoint::default_access, Visibility::running_kernel);
        ASSERT_TRUE(memory.ok()) << memory.message();
        const auto& shared = right().endpoint()->shared;
        const auto& first = shared.rails[0]->loopback;
        ASSERT_TRUE(first && shared.rails[1]->loopback);
        const Request sent = send(size);
        settle();
        Request received;
        ASSERT_EQ(right().irecv(*memory, device.data(), size, 1, received), code(0));
        {
            const ibv_qp* const full = shared.rails[1]->loopback->queue_pair.native();
            const PostFilter filter(full->context, [&](const ibv_qp& queue_pair, const auto&) {
                return &queue_pair == full ? ENOMEM : 0;
            });
            // The first device has flushed the memory when its send queue has been full once. The
            // second device cannot flush the memory.
            Completion completion;
            ASSERT_TRUE(progress_until([&] {
                completion = right().test(received);
                return completion.done || first->queue.next() > 100;
            }));
            EXPECT_FALSE(completion.done);
        }
        EXPECT_EQ(finish(right(), received).error, code(0)) << right().reason();
        EXPECT_EQ(finish(left(), sent).error, code(0));
        EXPECT_TRUE(device.bytes(0, size) == from_->bytes(0, size));
        pass(*from_, *to_, size);
    }
}

} // namespace
} // namespace rdmabuf::testing
