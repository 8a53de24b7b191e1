// SPDX-License-Identifier: BSD-3-Clause
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/bootstrap.hpp>

#include "fails_with.hpp"
#include "raw_peer.hpp"
#include "support.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using bootstrap::Channel;
using bootstrap::Listener;
using rdmabuf::testing::error_of;
using rdmabuf::testing::eventually;
using rdmabuf::testing::fails_with;
using rdmabuf::testing::frame;
using rdmabuf::testing::good_greeting;
using rdmabuf::testing::lasts_at_least;
using rdmabuf::testing::open_descriptors;
using rdmabuf::testing::RawListener;
using rdmabuf::testing::RawPeer;
using namespace std::chrono_literals;

constexpr auto long_enough = 20s;
/// Also the limit of connecting, so that it is longer than a busy machine needs for that.
constexpr auto short_timeout = 1000ms;

constexpr std::uint8_t message = 1;
constexpr std::uint8_t remote_region = 3;
constexpr std::uint8_t agreement = 4;
constexpr std::uint8_t barrier = 5;

using PeerAction = std::function<void(RawPeer&)>;

/// What connecting to a peer that does @p action comes to.
std::optional<Error> error_of_connecting(const PeerAction& action,
                                         std::chrono::milliseconds timeout = long_enough) {
    const RawListener listener;
    auto peer = std::async(std::launch::async, [&] {
        RawPeer accepted = listener.accept();
        action(accepted);
    });
    auto error = error_of(
        [&] { static_cast<void>(Channel::connect("127.0.0.1", listener.port(), timeout)); });
    peer.get();
    return error;
}

/// What accepting a peer that does @p action comes to.
std::optional<Error> error_of_accepting(const PeerAction& action,
                                        std::chrono::milliseconds timeout = long_enough) {
    Listener listener(0, "127.0.0.1");
    auto peer = std::async(std::launch::async, [&] {
        RawPeer connected = RawPeer::connect(listener.port());
        action(connected);
    });
    auto error = error_of([&] { static_cast<void>(listener.accept(timeout)); });
    peer.get();
    return error;
}

/// A channel whose other end has sent a valid greeting and then sends what the test wants.
struct Talk {
    Channel channel;
    RawPeer peer;
};

Talk make_talk(std::chrono::milliseconds timeout = long_enough) {
    const RawListener listener;
    auto accepted = std::async(std::launch::async, [&] {
        RawPeer peer = listener.accept();
        peer.send(good_greeting());
        EXPECT_EQ(peer.receive(good_greeting().size()), good_greeting());
        return peer;
    });
    Channel channel = Channel::connect("127.0.0.1", listener.port(), timeout);
    return {std::move(channel), accepted.get()};
}

class BootstrapPeer : public ::testing::Test {
  protected:
    void TearDown() override { EXPECT_EQ(open_descriptors(), before_) << "descriptors leaked"; }

  private:
    std::set<int> before_ = open_descriptors();
};

TEST_F(BootstrapPeer, that_hangs_up_at_any_byte_of_its_greeting_is_an_error) {
    const auto greeting = good_greeting();
    for (std::size_t sent = 0; sent < greeting.size(); ++sent) {
        const PeerAction hang_up = [&](RawPeer& peer) {
            EXPECT_EQ(peer.receive(greeting.size()), greeting);
            peer.send(std::span(greeting).first(sent));
            peer.close();
        };
        const auto expected =
            fails_with(ECONNRESET,
                       "recv: Connection reset by peer (ECONNRESET): the peer closed the "
                       "connection while this side waited for the peer's greeting, of which " +
                           std::to_string(sent) + " bytes had come");
        EXPECT_THAT(error_of_connecting(hang_up), expected);
        EXPECT_THAT(error_of_accepting(hang_up), expected);
    }
}

TEST_F(BootstrapPeer, that_hangs_up_at_any_byte_of_a_message_is_an_error) {
    const auto bytes = frame(message, "twelve bytes");
    for (std::size_t sent = 0; sent < bytes.size(); ++sent) {
        Talk talk = make_talk();
        talk.peer.send(std::span(bytes).first(sent));
        talk.peer.close();
        EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.receive()); }),
                    fails_with(ECONNRESET,
                               "the peer closed the connection while this side waited "
                               "for a message, of which " +
                                   std::to_string(sent) + " bytes had come"));
        EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.receive()); }),
                    fails_with(ENOTCONN,
                               "recv: Transport endpoint is not connected (ENOTCONN): an "
                               "earlier error has ended this channel"));
        EXPECT_THAT(error_of([&] { talk.channel.send({}); }), fails_with(ENOTCONN, "send: "));
    }
}

TEST_F(BootstrapPeer, that_is_reset_is_an_error_where_it_is_noticed_first) {
    Talk receiving = make_talk();
    receiving.peer.reset();
    EXPECT_THAT(error_of([&] { static_cast<void>(receiving.channel.receive()); }),
                fails_with(ECONNRESET,
                           "the peer closed the connection while this side waited for "
                           "a message"));
    Talk sending = make_talk();
    sending.peer.reset();
    EXPECT_THAT(error_of([&] { sending.channel.send({}); }),
                fails_with(ECONNRESET,
                           "send: Connection reset by peer (ECONNRESET): the peer "
                           "closed the connection while this side sent a message"));
}

TEST_F(BootstrapPeer, that_stalls_before_or_in_its_greeting_times_out) {
    const auto greeting = good_greeting();
    for (const std::size_t sent : {std::size_t{0}, greeting.size() - 1}) {
        const PeerAction stall = [&](RawPeer& peer) {
            peer.send(std::span(greeting).first(sent));
            // Until the other end gives up.
            EXPECT_EQ(peer.receive(greeting.size() + 1), greeting);
        };
        const auto expected =
            fails_with(ETIMEDOUT,
                       "not complete within 1000 ms, while this side waited for the peer's "
                       "greeting, of which " +
                           std::to_string(sent) + " bytes had come");
        EXPECT_TRUE(lasts_at_least(short_timeout, [&] {
            EXPECT_THAT(error_of_connecting(stall, short_timeout), expected);
        }));
        EXPECT_TRUE(lasts_at_least(short_timeout, [&] {
            EXPECT_THAT(error_of_accepting(stall, short_timeout), expected);
        }));
    }
}

TEST_F(BootstrapPeer, that_stalls_in_a_message_times_out_with_what_was_awaited) {
    const auto bytes = frame(barrier, "");
    for (const std::size_t sent : {std::size_t{0}, std::size_t{4}}) {
        Talk talk = make_talk(short_timeout);
        talk.peer.send(std::span(bytes).first(sent));
        EXPECT_TRUE(lasts_at_least(short_timeout, [&] {
            EXPECT_THAT(error_of([&] { talk.channel.barrier(); }),
                        fails_with(ETIMEDOUT,
                                   "recv: Connection timed out (ETIMEDOUT): not complete "
                                   "within 1000 ms, while this side waited for a barrier, of "
                                   "which " +
                                       std::to_string(sent) + " bytes had come"));
        }));
        EXPECT_THAT(error_of([&] { talk.channel.barrier(); }), fails_with(ENOTCONN, "ended"));
    }
}

TEST_F(BootstrapPeer, that_drips_gets_no_more_time_than_one_that_stalls) {
    Talk talk = make_talk(short_timeout);
    const std::vector<std::byte> bytes = frame(message, std::string(Channel::max_message, 'x'));
    std::atomic<bool> stop = false;
    // eventually() pauses after some bytes, so that the message takes longer than the timeout.
    auto drip = std::async(std::launch::async, [&] {
        std::size_t sent = 0;
        return eventually([&] { return stop || sent == bytes.size(); },
                          [&] { talk.peer.send(std::span(bytes).subspan(sent++, 1)); });
    });
    EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.receive()); }),
                fails_with(ETIMEDOUT, "not complete within 1000 ms"));
    stop = true;
    EXPECT_TRUE(drip.get());
}

TEST_F(BootstrapPeer, that_takes_nothing_times_out) {
    Talk talk = make_talk(short_timeout);
    const std::vector<std::byte> largest(Channel::max_message);
    std::optional<Error> error;
    bool waited = false;
    // No socket buffer holds 4 GiB.
    for (int i = 0; i < 64 * 1024 && !error; ++i) {
        waited = lasts_at_least(short_timeout,
                                [&] { error = error_of([&] { talk.channel.send(largest); }); });
    }
    EXPECT_TRUE(waited);
    EXPECT_THAT(error, fails_with(ETIMEDOUT,
                                  "send: Connection timed out (ETIMEDOUT): the peer did "
                                  "not read from the connection within 1000 ms, while this "
                                  "side sent a message"));
}

TEST_F(BootstrapPeer, that_is_a_web_server_is_quoted) {
    const PeerAction web_server = [](RawPeer& peer) {
        EXPECT_EQ(peer.receive(good_greeting().size()), good_greeting());
        peer.send("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    };
    EXPECT_THAT(error_of_connecting(web_server),
                fails_with(EPROTO,
                           "recv: Protocol error (EPROTO): the other end is not an rdmabuf "
                           "bootstrap; it sent \"HTTP/1.1 400 Bad Request\\r\\n"));
}

TEST_F(BootstrapPeer, that_says_one_wrong_letter_and_waits_is_known_at_once) {
    const PeerAction wrong = [](RawPeer& peer) {
        peer.send("?");
        EXPECT_EQ(peer.receive(good_greeting().size() + 1), good_greeting());
    };
    EXPECT_THAT(error_of_connecting(wrong), fails_with(EPROTO, "it sent \"?\""));
    EXPECT_THAT(error_of_accepting(wrong), fails_with(EPROTO, "it sent \"?\""));
}

TEST_F(BootstrapPeer, of_another_version_is_refused_with_both_versions) {
    auto greeting = good_greeting();
    greeting[4] = std::byte{0x02};
    greeting[5] = std::byte{0x01};
    const PeerAction newer = [&](RawPeer& peer) { peer.send(greeting); };
    const auto expected =
        fails_with(EPROTONOSUPPORT,
                   "recv: Protocol not supported (EPROTONOSUPPORT): the peer uses version "
                   "258 of the bootstrap protocol, and this side uses version 1: use the same "
                   "release of rdmabuf on both sides");
    EXPECT_THAT(error_of_connecting(newer), expected);
    EXPECT_THAT(error_of_accepting(newer), expected);
}

TEST_F(BootstrapPeer, that_announces_too_much_is_an_error_before_any_of_it_comes) {
    for (const auto& [size, length] :
         {std::pair{65537U, std::string_view("\x01\x00\x01\x00", 4)},
          std::pair{4294967295U, std::string_view("\xff\xff\xff\xff", 4)}}) {
        Talk talk = make_talk();
        talk.peer.send(length);
        talk.peer.send(std::string_view("\x01", 1));
        EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.receive()); }),
                    fails_with(EPROTO, "the peer announced " + std::to_string(size) +
                                           " bytes; a message has up to 65536"));
        EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.receive()); }),
                    fails_with(ENOTCONN, "ended"));
    }
}

TEST_F(BootstrapPeer, that_sends_an_unknown_kind_of_message_is_an_error) {
    Talk talk = make_talk();
    talk.peer.send(frame(0, "x"));
    talk.peer.send(frame(200, ""));
    talk.peer.send(frame(message, "known"));
    for (int i = 0; i < 2; ++i) {
        EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.receive()); }),
                    fails_with(EPROTO,
                               "the peer sent an unknown type of message "
                               "where a message was expected"));
    }
    // The frames were whole, so the next one is found.
    EXPECT_EQ(talk.channel.receive().size(), 5U);
}

TEST_F(BootstrapPeer, that_sends_a_garbled_message_of_the_right_kind_is_an_error) {
    Talk talk = make_talk();
    talk.peer.send(frame(remote_region, std::string(RemoteRegion::wire_size, '?')));
    EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.exchange(RemoteRegion{})); }),
                fails_with(EPROTO, "the peer's bytes are not a remote region: "));
    talk.peer.send(frame(remote_region, "short"));
    EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.exchange(RemoteRegion{})); }),
                fails_with(EMSGSIZE, "the peer's bytes are not a remote region: "));
    for (const std::string_view payload :
         {std::string_view("\x05", 1), std::string_view("\x03\x00no", 4)}) {
        talk.peer.send(frame(agreement, payload));
        EXPECT_THAT(error_of([&] { talk.channel.agree("no", ""); }),
                    fails_with(EPROTO, "the peer sent a malformed agreement"));
    }
    talk.peer.send(frame(barrier, "x"));
    EXPECT_THAT(error_of([&] { talk.channel.barrier(); }),
                fails_with(EPROTO, "the peer sent a malformed barrier"));
}

TEST_F(BootstrapPeer, is_waited_for_in_spite_of_signals) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    struct sigaction before {};
    ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
    Talk talk = make_talk(short_timeout);
    const pthread_t waiting = ::pthread_self();
    std::atomic<bool> stop = false;
    // If each signal made the wait longer, the wait would not end before the signals do.
    auto interrupter = std::async(std::launch::async, [&] {
        return eventually([&] { return stop.load(); }, [&] { ::pthread_kill(waiting, SIGUSR1); });
    });
    EXPECT_TRUE(lasts_at_least(short_timeout, [&] {
        EXPECT_THAT(error_of([&] { static_cast<void>(talk.channel.receive()); }),
                    fails_with(ETIMEDOUT, "not complete within 1000 ms"));
    }));
    stop = true;
    EXPECT_TRUE(interrupter.get());
    EXPECT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

} // namespace
} // namespace rdmabuf
