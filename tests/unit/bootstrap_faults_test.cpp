// SPDX-License-Identifier: BSD-3-Clause
// Each operation of the bootstrap is run again and again, with its first system call failing, then
// its second, and so on until it succeeds. Whatever fails comes out, and no descriptor is left.
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/bootstrap.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "failing_calls.hpp"
#include "fails_with.hpp"
#include "raw_peer.hpp"
#include "support.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using bootstrap::Channel;
using bootstrap::Listener;
using rdmabuf::testing::error_of;
using rdmabuf::testing::FailingCalls;
using rdmabuf::testing::fails_with;
using rdmabuf::testing::open_descriptors;
using rdmabuf::testing::RawPeer;
using ::testing::IsSupersetOf;
using namespace std::chrono_literals;

constexpr auto long_enough = 20s;

using Failures = std::vector<FailingCalls::Failure>;

/// What failing calls made of an operation.
struct Outcome {
    std::optional<Error> error;
    /// The function whose call the last Failure was for; empty when it made fewer calls.
    std::string failed;
};

template <class Action>
Outcome run_failing(const Failures& failures, const Action& action) {
    const FailingCalls failing(failures);
    auto error = error_of(action);
    return {std::move(error), failing.failed(failures.size() - 1)};
}

Outcome listen(const std::string& host, const Failures& failures) {
    return run_failing(failures, [&] { const Listener listener(0, host); });
}

Outcome connect(const Failures& failures) {
    Listener listener(0, "127.0.0.1");
    // Takes the first that comes, and lets it go.
    auto peer = std::async(std::launch::async, [&] {
        return error_of([&] { static_cast<void>(listener.accept(long_enough)); });
    });
    Outcome outcome = run_failing(failures, [&] {
        static_cast<void>(Channel::connect("127.0.0.1", listener.port(), long_enough));
    });
    if (outcome.error) {
        // It may not have come so far as to connect, and the peer shall not wait for it.
        RawPeer::connect(listener.port()).close();
    }
    peer.get();
    return outcome;
}

Outcome accept(const Failures& failures) {
    std::optional<Listener> listener(std::in_place, 0, "127.0.0.1");
    auto peer = std::async(std::launch::async, [port = listener->port()] {
        return error_of(
            [&] { static_cast<void>(Channel::connect("127.0.0.1", port, long_enough)); });
    });
    // A peer that begins to connect after the listener has gone would try until its timeout.
    EXPECT_TRUE(testing::becomes_readable(listener->native()));
    Outcome outcome =
        run_failing(failures, [&] { static_cast<void>(listener->accept(long_enough)); });
    // Who was not accepted is reset.
    listener.reset();
    peer.get();
    return outcome;
}

Outcome talk(const std::function<void(Channel&)>& step, const Failures& failures) {
    Listener listener(0, "127.0.0.1");
    auto peer = std::async(std::launch::async, [&] {
        Channel accepted = listener.accept(long_enough);
        return error_of([&] { step(accepted); });
    });
    Channel channel = Channel::connect("127.0.0.1", listener.port(), long_enough);
    Outcome outcome = run_failing(failures, [&] { step(channel); });
    if (outcome.error) {
        EXPECT_THAT(error_of([&] { step(channel); }), fails_with(ENOTCONN, "ended"));
    }
    peer.get();
    return outcome;
}

Outcome duplicate(const Failures& failures) {
    const UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
    return run_failing(failures, [&] { static_cast<void>(fd.duplicate()); });
}

struct Operation {
    const char* name;
    /// At least one call of each is made to fail.
    std::vector<std::string> calls;
    std::function<Outcome(const Failures&)> run;
};
std::ostream& operator<<(std::ostream& out, const Operation& operation) {
    return out << operation.name;
}

template <class Step>
std::function<Outcome(const Failures&)> talking(Step step) {
    return [step](const Failures& failures) { return talk(step, failures); };
}

const std::array operations{
    Operation{"ListenAtAll",
              {"socket", "setsockopt", "bind", "listen", "getsockname"},
              [](const Failures& failures) { return listen("", failures); }},
    Operation{"ListenAtOne",
              {"getaddrinfo", "socket", "bind", "setsockopt", "listen", "getsockname"},
              [](const Failures& failures) { return listen("127.0.0.1", failures); }},
    Operation{"Connect",
              {"getaddrinfo", "socket", "connect", "poll", "getsockopt", "getsockname",
               "getpeername", "setsockopt", "send", "recv"},
              connect},
    Operation{"Accept", {"poll", "accept4", "setsockopt", "send", "recv"}, accept},
    Operation{"ExchangeAddresses", {"send", "poll", "recv"}, talking([](Channel& channel) {
                  static_cast<void>(channel.exchange(QueuePairAddress{}));
              })},
    Operation{"Agree", {"send", "poll", "recv"}, talking([](Channel& channel) {
                  channel.agree("size", "4096");
              })},
    Operation{
        "Barrier", {"send", "poll", "recv"}, talking([](Channel& channel) { channel.barrier(); })},
    Operation{"SendAndReceive", {"send", "poll", "recv"}, talking([](Channel& channel) {
                  channel.send(std::array{std::byte{1}});
                  EXPECT_EQ(channel.receive().size(), 1U);
              })},
    Operation{"Duplicate", {"fcntl"}, duplicate},
};

/// Each of the calls that say so when they would have to wait says it once: then the operation
/// polls, whoever is faster.
Failures with_waits(FailingCalls::Failure last) {
    return {{"accept4", 1, EAGAIN}, {"send", 1, EAGAIN}, {"recv", 1, EAGAIN}, std::move(last)};
}

/// As errors speak of it.
std::string known_as(const std::string& call) {
    return call == "accept4" ? "accept" : call;
}

class BootstrapFaults : public ::testing::TestWithParam<Operation> {
  protected:
    /// Runs the operation with its first call failing, its second, and so on until it makes no
    /// more.
    template <class Check>
    void fail_each(int error, const Check& check) {
        for (unsigned n = 1;; ++n) {
            ASSERT_LE(n, 64U) << "it never succeeds";
            const auto descriptors = open_descriptors();
            const Outcome outcome = GetParam().run(with_waits({"", n, error}));
            EXPECT_EQ(open_descriptors(), descriptors)
                << "after the failure of call " << n << ", " << outcome.failed;
            if (outcome.failed.empty()) {
                EXPECT_FALSE(outcome.error) << outcome.error->what();
                break; // it made fewer calls than that
            }
            check(outcome);
        }
    }
};

TEST_P(BootstrapFaults, ComeOutAndLeaveNothingBehind) {
    std::vector<std::string> failed;
    fail_each(EREMOTEIO, [&](const Outcome& outcome) { // which nothing else makes
        failed.push_back(outcome.failed);
        if (outcome.failed == "getaddrinfo") {
            EXPECT_THAT(outcome.error, fails_with("getaddrinfo", EINVAL, "EREMOTEIO"));
        } else {
            EXPECT_THAT(outcome.error, fails_with(known_as(outcome.failed), EREMOTEIO, ""));
        }
    });
    EXPECT_THAT(failed, IsSupersetOf(GetParam().calls));
}

TEST_P(BootstrapFaults, ThatAreInterruptionsDoNoHarmWhereCallsAreInterrupted) {
    fail_each(EINTR, [](const Outcome& outcome) {
        // signal(7): of those made here, they alone.
        const std::set<std::string> interrupted{"accept4", "connect", "poll", "recv", "send"};
        if (interrupted.contains(outcome.failed)) {
            EXPECT_FALSE(outcome.error) << outcome.error->what();
        } else {
            EXPECT_TRUE(outcome.error) << outcome.failed << " failed, and nobody noticed";
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Operations, BootstrapFaults, ::testing::ValuesIn(operations),
                         [](const auto& operation) { return std::string(operation.param.name); });

class Bootstrap : public ::testing::Test {
  protected:
    void TearDown() override { EXPECT_EQ(open_descriptors(), before_) << "descriptors leaked"; }

  private:
    std::set<int> before_ = open_descriptors();
};

TEST_F(Bootstrap, ListensAtIpv4WhereThereIsNoIpv6) {
    for (const FailingCalls::Failure& no_ipv6 :
         {FailingCalls::Failure{"socket", 1, EAFNOSUPPORT}, {"bind", 1, EADDRNOTAVAIL}}) {
        EXPECT_FALSE(listen("", {no_ipv6}).error);
        for (const char* const call : {"socket", "bind", "listen"}) {
            // Of IPv6 only what told that it is missing has been called, and what is before that.
            const bool twice = no_ipv6.function == "bind" && std::string(call) == "socket";
            EXPECT_THAT(listen("", {no_ipv6, {call, twice ? 2U : 1U, EREMOTEIO}}).error,
                        fails_with(call, EREMOTEIO, ""));
        }
    }
}

TEST_F(Bootstrap, AcceptsTheNextConnectionWhenOneFailedBefore) {
    // accept(2), "Error handling".
    for (const int error : {ECONNABORTED, ENETDOWN, EPROTO, ENOPROTOOPT, EHOSTDOWN, ENONET,
                            EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH}) {
        const Outcome outcome = accept({{"accept4", 1, error}});
        EXPECT_EQ(outcome.failed, "accept4");
        EXPECT_FALSE(outcome.error) << outcome.error->what();
    }
}

TEST_F(Bootstrap, ListenerThatCouldNotAcceptCanDoItLater) {
    Listener listener(0, "127.0.0.1");
    auto peer = std::async(std::launch::async, [&] {
        return Channel::connect("127.0.0.1", listener.port(), long_enough);
    });
    EXPECT_THAT(run_failing({{"accept4", 1, EMFILE}},
                            [&] { static_cast<void>(listener.accept(long_enough)); })
                    .error,
                fails_with("accept", EMFILE, ""));
    Channel accepted = listener.accept(long_enough);
    Channel connected = peer.get();
    connected.send(std::array{std::byte{7}});
    EXPECT_THAT(accepted.receive(), ::testing::ElementsAre(std::byte{7}));
}

} // namespace
} // namespace rdmabuf
