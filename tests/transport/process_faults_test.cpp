// SPDX-License-Identifier: BSD-3-Clause
// Two processes set up a channel and use all its operations. One of them is killed or stopped
// before its n-th verbs call, for many n. All processes are children of the test program, which
// calls no verbs.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/transport.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "child_process.hpp"
#include "recorder/verbs_recorder.hpp"
#include "temporary_directory.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using transport::Channel;
using transport::ChannelAddress;
using transport::Completion;
using transport::Endpoint;
using transport::EndpointOptions;
using transport::Handle;
using transport::RemoteMemory;
using transport::Request;
using transport::Tag;
using transport::TransferEntry;

/// What happens to the victim before its n-th verbs call.
enum class Fate : std::uint8_t {
    killed,
    /// Stopped until the other process, the survivor, has failed. Then killed.
    stopped_and_killed,
    /// Stopped until the survivor has failed. Then resumed.
    stopped_and_resumed,
    /// Resumed at once: both processes finish without an error.
    interrupted,
};

/// The options of both ends. If a machine is so busy that a time limit is exceeded before the
/// victim is stopped, the test is repeated.
EndpointOptions options_for(Fate fate) {
    EndpointOptions options = {.receive_buffers = 64,
                               .send_buffers = 64,
                               .min_fragment = 16384,
                               .linger = 50ms,
                               .ack_timeout = 14, // 67 ms
                               .retry_count = 3};
    switch (fate) {
        case Fate::killed:
            options.heartbeat = 50ms;
            options.handshake = 1000ms;
            break;
        case Fate::stopped_and_killed:
        case Fate::stopped_and_resumed:
            options.heartbeat = 50ms;
            options.timeout = 500ms;
            options.handshake = 700ms;
            break;
        case Fate::interrupted:
            options.ack_timeout = 18; // 1 s
            options.retry_count = 7;
            options.timeout = options.handshake = testing::time_limit;
            break;
    }
    return options;
}

/// Ranges of the memory of an end, with guard bytes between them.
struct Range {
    std::size_t offset;
    std::size_t length;
};
constexpr std::size_t long_length = 200000;
constexpr Range source = {1024, long_length};
constexpr Range short_message = {210000, 64};
constexpr Range medium_message = {212000, 5000};
constexpr Range long_message = {220000, long_length};
constexpr Range put = {430000, 60000};
constexpr Range get = {500000, 60000};
constexpr Range list = {570000, 60000};
constexpr Range old_value = {640000, 8};
constexpr Range counter = {640128, 8};
constexpr Range descriptor = {641000, sizeof(RemoteMemory)};
constexpr std::size_t memory_size = 650000;
constexpr std::array ranges = {source, short_message, medium_message, long_message, put,
                               get,    list,          old_value,      counter,      descriptor};
constexpr std::byte guard{0x5a};

/// The byte of the source at @p offset.
constexpr std::byte source_byte(std::size_t offset) {
    return static_cast<std::byte>(offset * 7 + offset / 256);
}

/// One end of the channel.
class End {
  public:
    End(const EndpointOptions& options, std::uint32_t devices)
        : endpoint_(value(Endpoint::open(first_devices(devices), Resolver(), options))),
          memory_(value(endpoint_.register_memory(
              bytes_.data(), bytes_.size(), Endpoint::default_access | Access::remote_atomic))) {
        for (std::size_t i = 0; i < source.length; ++i) {
            bytes_[source.offset + i] = source_byte(i);
        }
        std::fill_n(at(counter), counter.length, std::byte{});
    }

    /// Connects to the other process.
    /// @param socket      transfers the handle
    /// @param on_handle   called when this end has sent or received the handle
    /// @return the error of connecting
    std::error_code connect(int socket, bool listens, const std::function<void()>& on_handle) {
        const std::chrono::milliseconds limit = endpoint_.options().handshake + 500ms;
        if (listens) {
            auto listener = value(endpoint_.listen("127.0.0.1"));
            const auto bytes = listener.handle().bytes();
            if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) {
                return last_error();
            }
            on_handle();
            return keep(listener.accept(limit));
        }
        std::array<std::byte, Handle::wire_size> bytes{};
        if (::recv(socket, bytes.data(), bytes.size(), MSG_WAITALL) !=
            static_cast<ssize_t>(bytes.size())) {
            return {ECONNRESET, std::system_category()};
        }
        on_handle();
        return keep(endpoint_.connect(*Handle::decode(bytes), limit));
    }
    /// Connects to the other process by exchanged addresses.
    /// @param socket  only transfers the addresses
    std::error_code connect_by_addresses(int socket) {
        auto prepared = value(endpoint_.prepare_channel());
        std::array<std::byte, ChannelAddress::wire_size> theirs{};
        const auto ours = prepared.address().bytes();
        if (::send(socket, ours.data(), ours.size(), 0) < 0 ||
            ::recv(socket, theirs.data(), theirs.size(), MSG_WAITALL) != std::ssize(theirs)) {
            return last_error();
        }
        return keep(std::move(prepared).connect(value(ChannelAddress::decode(theirs))));
    }
    /// Uses each operation of the channel in each round. @return the first error
    std::error_code run(int rounds) {
        std::error_code error = exchange_descriptors();
        for (int round = 1; round <= rounds && !error; ++round) {
            error = run_round(static_cast<Tag>(round));
        }
        if (error) {
            return error;
        }
        check_what_arrived();
        return exchange();
    }
    /// Exchanges messages of 0 bytes, so that both ends have finished all that was before.
    std::error_code exchange() {
        std::array<Request, 2> requests;
        std::error_code error = channel_->irecv(memory_, at(source), 0, 0, requests[0]);
        if (!error) {
            error = channel_->isend(memory_, at(source), 0, 0, requests[1]);
        }
        return finish(requests, error);
    }
    /// Waits for a message of 0 bytes.
    std::error_code receive() {
        std::array<Request, 1> requests;
        const std::error_code error = channel_->irecv(memory_, at(source), 0, 0, requests[0]);
        return finish(requests, error);
    }

    /// Checks the guard bytes, and the bytes that no operation changes.
    [[nodiscard]] bool guards_are_unchanged() const {
        std::vector<bool> used(bytes_.size());
        for (const Range& range : ranges) {
            std::fill_n(used.begin() + static_cast<std::ptrdiff_t>(range.offset), range.length,
                        true);
        }
        for (std::size_t i = 0; i < bytes_.size(); ++i) {
            if (!used[i] && bytes_[i] != guard) {
                return false;
            }
        }
        for (std::size_t i = 0; i < source.length; ++i) {
            if (bytes_[source.offset + i] != source_byte(i)) {
                return false;
            }
        }
        return true;
    }
    /// Sets all bytes of the memory except those that are sent, after all requests have ended.
    /// softverbs copies long data from the memory of the sender when the receiving process runs
    /// again, so a stopped peer would receive the new bytes of an ended send.
    void fill(std::byte byte) {
        for (std::size_t i = 0; i < bytes_.size(); ++i) {
            bytes_[i] = is_sent(i) ? bytes_[i] : byte;
        }
    }
    [[nodiscard]] bool all_are(std::byte byte) const {
        for (std::size_t i = 0; i < bytes_.size(); ++i) {
            if (!is_sent(i) && bytes_[i] != byte) {
                return false;
            }
        }
        return true;
    }
    [[nodiscard]] Channel& channel() { return *channel_; }
    /// Makes progress until a byte arrives on @p socket. @return false if none arrives within the
    /// time limit
    bool wait_for_byte(int socket) {
        const auto arrived = [socket] {
            char byte = 0;
            return ::recv(socket, &byte, 1, MSG_DONTWAIT) == 1;
        };
        return testing::eventually(arrived, [&] {
            endpoint_.progress();
            endpoint_.wait(1ms);
        });
    }

  private:
    [[nodiscard]] static bool is_sent(std::size_t offset) {
        return offset >= source.offset && offset - source.offset < source.length;
    }
    static std::vector<Context> first_devices(std::uint32_t count) {
        std::vector<Context> contexts;
        for (const Device& device : DeviceList()) {
            if (contexts.size() < count) {
                contexts.emplace_back(device);
            }
        }
        return contexts;
    }
    template <class T>
    static T value(Result<T> result) {
        return std::move(result).value();
    }
    static std::error_code last_error() { return {errno, std::system_category()}; }
    std::error_code keep(Result<Channel> channel) {
        if (!channel) {
            return channel.code();
        }
        channel_.emplace(*std::move(channel));
        return {};
    }
    [[nodiscard]] std::byte* at(const Range& range) { return bytes_.data() + range.offset; }

    /// Waits until all requests have ended, also after an error. @return the first error
    std::error_code finish(std::span<Request> requests, std::error_code error) {
        for (Request& request : requests) {
            if (request.index == Request::empty_index) {
                continue;
            }
            Completion completion;
            const bool ended = testing::eventually([&] {
                completion = channel_->test(request);
                return completion.done;
            });
            if (!ended) {
                throw std::runtime_error("a request has not ended");
            }
            error = error ? error : completion.error;
        }
        return error;
    }
    std::error_code exchange_descriptors() {
        const auto ours = value(memory_.remote());
        std::array<Request, 2> requests;
        // The own descriptor is sent from the range that is received to later.
        std::ranges::copy(ours.bytes(), at(long_message));
        std::error_code error =
            channel_->irecv(memory_, at(descriptor), descriptor.length, 0, requests[0]);
        if (!error) {
            error = channel_->isend(memory_, at(long_message), descriptor.length, 0, requests[1]);
        }
        error = finish(requests, error);
        if (!error) {
            remote_ = value(RemoteMemory::decode(std::span(at(descriptor), descriptor.length)));
        }
        return error;
    }
    std::error_code run_round(Tag tag) {
        for (const Range& range : {short_message, medium_message, long_message, get}) {
            std::fill_n(at(range), range.length, std::byte{});
        }
        const std::array<TransferEntry, 2> entries = {{{.memory = &memory_,
                                                        .address = at(source),
                                                        .length = list.length / 2,
                                                        .remote = &remote_,
                                                        .offset = list.offset},
                                                       {.memory = &memory_,
                                                        .address = at(source) + list.length / 2,
                                                        .length = list.length / 2,
                                                        .remote = &remote_,
                                                        .offset = list.offset + list.length / 2}}};
        const std::array notification = {std::byte{1}, std::byte{2}, std::byte{3}};
        std::array<Request, 12> requests;
        std::size_t started = 0;
        Channel& channel = *channel_;
        // Each call starts the next request, unless an earlier one has failed.
        std::error_code error;
        const auto start = [&](const auto& call) {
            if (!error) {
                error = call(requests.at(started++));
            }
        };
        for (const Range& range : {short_message, medium_message, long_message}) {
            start([&](Request& r) {
                return channel.irecv(memory_, at(range), range.length, tag, r);
            });
        }
        for (const Range& range : {short_message, medium_message, long_message}) {
            start([&](Request& r) {
                return channel.isend(memory_, at(source), range.length, tag, r);
            });
        }
        start([&](Request& r) {
            return channel.iput(memory_, at(source), put.length, remote_, put.offset, r);
        });
        start([&](Request& r) {
            return channel.iget(memory_, at(get), get.length, remote_, source.offset, r);
        });
        start([&](Request& r) { return channel.iput_list(entries, r, notification); });
        start([&](Request& r) {
            return channel.ifetch_add(memory_, reinterpret_cast<std::uint64_t*>(at(old_value)),
                                      remote_, counter.offset, 1, r);
        });
        start([&](Request& r) { return channel.ifence(r); });
        start([&](Request& r) {
            return channel.iput_notify(memory_, at(source), 8, remote_, put.offset, tag, r);
        });
        error = finish(requests, error);
        for (int received = 0; received < 2 && !error;) {
            received += channel.notification(std::span(notification_)).ok() ? 1 : 0;
            error = channel.state();
        }
        return error;
    }

    /// After the last round, because the other end writes the same ranges in each round.
    void check_what_arrived() {
        for (const Range& range : {short_message, medium_message, long_message, get, put, list}) {
            if (!std::equal(at(range), at(range) + range.length, at(source))) {
                throw std::runtime_error("the bytes at " + std::to_string(range.offset) +
                                         " are not those that were sent");
            }
        }
    }

    std::vector<std::byte> bytes_ = std::vector<std::byte>(memory_size, guard);
    Endpoint endpoint_;
    transport::Memory memory_;
    std::optional<Channel> channel_;
    RemoteMemory remote_;
    std::array<std::byte, transport::max_notification> notification_{};
};

constexpr int rounds = 2;

/// The exit statuses of the victim.
enum Status : std::uint8_t {
    /// It has finished all rounds with fewer verbs calls.
    finished = 3,
    /// It has finished all rounds after it was resumed.
    finished_later,
    /// It has failed before the signal.
    failed_early,
    /// It has failed after it was resumed.
    failed_later,
};

/// The exit status of a survivor whose requests have ended with an error that it should not have
/// had. It is 1 if its memory or the state of its channel is wrong.
constexpr int other_error = 7;

bool is_one_of(std::error_code error, std::initializer_list<int> values) {
    return std::ranges::find(values, error.value()) != values.end();
}

class ProcessFaults : public ::testing::TestWithParam<Fate> {
  protected:
    enum class Outcome : std::uint8_t { tested, repeat, finished };

    /// Runs both processes. The victim gets the signal before verbs call number @p step.
    Outcome run(unsigned step) {
        const Fate fate = GetParam();
        const bool victim_listens = step % 2 == 0;
        const std::uint32_t devices = step / 2 % 2 + 1;
        const std::array<int, 2> control = connected_sockets(testing::time_limit);
        const UniqueFd parent_end(control[0]);
        UniqueFd child_end(control[1]);
        const auto children = fork_pair(
            2 * testing::time_limit,
            [&](int socket) {
                use_devices(devices);
                return survive(socket, control[1], fate, !victim_listens, devices);
            },
            [&](int socket) {
                use_devices(devices);
                return die(socket, fate, victim_listens, devices, step);
            });
        child_end.reset();
        int status = 0;
        EXPECT_EQ(::waitpid(children[1], &status, WUNTRACED), children[1]);
        if (WIFSTOPPED(status)) {
            if (fate != Fate::interrupted) {
                char byte = 0; // The survivor has failed, or it has finished all rounds.
                EXPECT_EQ(::recv(parent_end.get(), &byte, 1, 0), 1);
            }
            ::kill(children[1], fate == Fate::stopped_and_killed ? SIGKILL : SIGCONT);
            status = status_of_child(children[1]);
        }
        // From here on, the victim cannot write to the memory of the survivor.
        EXPECT_EQ(::send(parent_end.get(), "c", 1, MSG_NOSIGNAL), 1);
        const int survivor = status_of_child(children[0]);
        EXPECT_TRUE(WIFEXITED(survivor)) << "signal " << WTERMSIG(survivor);
        if (WIFEXITED(status) && WEXITSTATUS(status) == failed_early) {
            // The time limits expired, so that the survivor's error is of another kind. Its memory
            // is its own nevertheless.
            EXPECT_NE(WEXITSTATUS(survivor), 1);
            return Outcome::repeat;
        }
        EXPECT_EQ(WEXITSTATUS(survivor), 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == finished) {
            return Outcome::finished;
        }
        if (fate == Fate::killed || fate == Fate::stopped_and_killed) {
            EXPECT_TRUE(WIFSIGNALED(status)) << "exit status " << WEXITSTATUS(status);
            EXPECT_EQ(WTERMSIG(status), SIGKILL);
            return Outcome::tested;
        }
        EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
        if (fate == Fate::interrupted || WEXITSTATUS(status) != failed_later) {
            EXPECT_EQ(WEXITSTATUS(status), finished_later);
        }
        return Outcome::tested;
    }

  private:
    void use_devices(std::uint32_t devices) const {
        ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
        ::setenv("SOFTVERBS_DEVICES", std::to_string(devices).c_str(), 1);
    }

    static int survive(int socket, int control, Fate fate, bool listens, std::uint32_t devices) {
        End end(options_for(fate), devices);
        std::error_code error = end.connect(socket, listens, [] {});
        const bool connected = !error;
        if (!error) {
            error = end.run(rounds);
        }
        bool good = end.guards_are_unchanged();
        if (!good) {
            std::fprintf(stderr, "bytes outside the ranges of requests were written\n");
        }
        if (error && connected) {
            // All requests have ended: the program may use the memory for other data.
            end.fill(std::byte{0xa5});
            good = good && end.channel().state() && end.channel().in_flight() == 0;
        }
        const bool expected =
            !error ||
            (fate == Fate::killed
                 ? is_one_of(error, connected ? std::initializer_list<int>{ECONNRESET, EHOSTUNREACH}
                                              : std::initializer_list<int>{ECONNRESET, ECONNREFUSED,
                                                                           ETIMEDOUT})
             : fate == Fate::interrupted
                 ? false
                 : is_one_of(error, {ETIMEDOUT, EHOSTUNREACH, ECONNABORTED, EIO, ECONNRESET}));
        if (!expected) {
            std::fprintf(stderr, "error %s: %s\n", error.message().c_str(),
                         connected ? end.channel().reason() : "while connecting");
        }
        if (::send(control, "f", 1, MSG_NOSIGNAL) != 1 || !end.wait_for_byte(control)) {
            return 1;
        }
        if (error && connected && !end.all_are(std::byte{0xa5})) {
            std::fprintf(stderr, "memory was written to after the end of its requests\n");
            good = false;
        }
        return !good ? 1 : expected ? 0 : other_error;
    }

    static int die(int socket, Fate fate, bool listens, std::uint32_t devices, unsigned step) {
        unsigned calls = 0;
        End end(options_for(fate), devices);
        const auto count = [&](const char*) {
            if (calls++ == step) {
                ::kill(::getpid(), fate == Fate::killed ? SIGKILL : SIGSTOP);
            }
        };
        // Step 0 is before connecting.
        std::error_code error = end.connect(socket, listens, [&] {
            testing::before_each_call(count);
            count("");
        });
        if (!error) {
            error = end.run(rounds);
        }
        if (!error) {
            // Fails with ECONNRESET if the peer closes its socket, because it has received the
            // message that closes the channel, before its device acknowledges this message.
            static_cast<void>(end.channel().close());
        }
        testing::forget_calls();
        if (!error) {
            return calls > step ? finished_later : finished;
        }
        if (calls <= step) {
            return failed_early;
        }
        std::fprintf(stderr, "the victim has failed: %s\n", error.message().c_str());
        return is_one_of(error, {ETIMEDOUT, EHOSTUNREACH, ECONNABORTED, EIO, ECONNRESET, EPIPE,
                                 ECONNREFUSED})
                   ? failed_later
                   : 1;
    }

    TemporaryDirectory directory_;
};

std::string name_of(Fate fate) {
    constexpr std::array names = {"killed", "stopped_and_killed", "stopped_and_resumed",
                                  "interrupted"};
    return names.at(static_cast<std::size_t>(fate));
}
INSTANTIATE_TEST_SUITE_P(of_a_process, ProcessFaults,
                         ::testing::Values(Fate::killed, Fate::stopped_and_killed,
                                           Fate::stopped_and_resumed, Fate::interrupted),
                         [](const auto& value) { return name_of(value.param); });

TEST_P(ProcessFaults, end_each_request_of_the_other_process_and_write_nothing_afterwards) {
    const bool slow = GetParam() == Fate::stopped_and_killed ||
                      GetParam() == Fate::stopped_and_resumed; // runs end with a time limit
    unsigned step = 0;
    // The number of calls depends on the number of devices, and so on the number of the step.
    for (int finished_runs = 0; finished_runs < 2 && !HasFailure();) {
        SCOPED_TRACE(step);
        const Outcome outcome = run(step);
        if (outcome == Outcome::repeat) { // The machine was too busy for the time limits.
            continue;
        }
        finished_runs = outcome == Outcome::finished ? finished_runs + 1 : 0;
        step += slow ? 5 : step < 16 ? 1 : 3;
    }
    EXPECT_GT(step, 30U);
}

// No socket reports the end of the peer.
TEST(ExchangedAddresses, connect_two_processes_of_which_the_keepalive_finds_one_killed) {
    const TemporaryDirectory directory;
    const auto run = [&](int socket, const std::function<void(End&)>& role) {
        ::setenv("SOFTVERBS_DIR", directory.path().c_str(), 1);
        // The device reports a peer that does not respond after 3 retransmissions of 67 ms. A
        // process that only waits for a processor responds earlier.
        End end({.heartbeat = 20ms, .linger = 50ms, .ack_timeout = 14, .retry_count = 3}, 1);
        EXPECT_FALSE(end.connect_by_addresses(socket));
        EXPECT_FALSE(end.exchange());
        role(end);
        return 0;
    };
    const auto children = fork_pair(
        2 * testing::time_limit,
        [&](int socket) {
            return run(socket, [socket](End&) {
                // A message that a process has sent can get lost if the process is killed.
                char byte = 0;
                if (::recv(socket, &byte, 1, 0) == 1) {
                    ::kill(::getpid(), SIGKILL);
                }
            });
        },
        [&](int socket) {
            return run(socket, [socket](End& end) {
                EXPECT_EQ(::send(socket, "r", 1, 0), 1);
                EXPECT_EQ(end.receive().value(), EHOSTUNREACH);
            });
        });
    expect_success(children[1]);
    const int status = status_of_child(children[0]);
    EXPECT_TRUE(WIFSIGNALED(status));
}

} // namespace
} // namespace rdmabuf
