// SPDX-License-Identifier: BSD-3-Clause
// Each step of a connection is taken again and again, with its first call of librdmacm or
// libibverbs failing, then its second, and so on until it succeeds; then the same with system
// calls. Whatever fails comes out, and no id, channel, queue pair, event or descriptor is left.
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include <rdmabuf/cm_channel.hpp>

#include "cm_fixture.hpp"
#include "failing_calls.hpp"

namespace rdmabuf {
namespace {

using cm::Connection;
using cm::ConnectionRequest;
using cm::Listener;
using cm::Route;
using ::testing::ElementsAreArray;
using testing::error_of;
using testing::FailingCalls;
using testing::fails_with;
using Calls = std::vector<std::string>;

class CmFaults : public testing::ConnectionTest {
  protected:
    using Arm = std::function<void()>;

    /// @param step         arms the failure once it has what it needs
    /// @param calls        what it calls, in order
    /// @param system_calls the same of system calls
    template <class Step>
    void fail_each_call(const Step& step, const Calls& calls, const Calls& system_calls) {
        EXPECT_THAT(failing_native_calls(step), ElementsAreArray(calls));
        EXPECT_THAT(failing_system_calls(step), ElementsAreArray(system_calls));
    }

  private:
    template <class Step>
    Calls failing_native_calls(const Step& step) {
        Calls failed;
        for (unsigned n = 1;; ++n) {
            unsigned left = n;
            const auto error = checked(
                step, [&left] { fail_when_none_are_left(left); },
                [] {
                    fake_rdmacm::cancel_failures(); // the step's own
                    fake_rdmacm::before_each_call(nullptr);
                    testing::before_each_call(nullptr);
                });
            if (!error) {
                EXPECT_NE(left, 0U) << "call " << n << " failed, and nobody noticed";
                return failed;
            }
            EXPECT_EQ(error->error(), EREMOTEIO) << error->what();
            failed.emplace_back(error->function());
        }
    }

    template <class Step>
    Calls failing_system_calls(const Step& step) {
        Calls failed;
        for (unsigned n = 1;; ++n) {
            std::optional<FailingCalls> failing;
            std::string call;
            const auto error = checked(
                step,
                [&] {
                    failing.emplace(std::vector<FailingCalls::Failure>{{"", n, EREMOTEIO}});
                    // For the first event it has to wait then.
                    fake_rdmacm::fail_next("rdma_get_cm_event", EAGAIN);
                },
                [&] {
                    call = failing->failed(0);
                    failing.reset();
                    fake_rdmacm::cancel_failures();
                });
            if (call.empty()) {
                EXPECT_FALSE(error) << error->what();
                return failed;
            }
            EXPECT_THAT(error, fails_with(call, call == "getaddrinfo" ? EINVAL : EREMOTEIO, ""));
            failed.push_back(call);
        }
    }

    /// Each call of either library takes one from @p left; the last of them fails with EREMOTEIO,
    /// which nothing else makes.
    static void fail_when_none_are_left(unsigned& left) {
        const auto is_to_fail = [&left] { return left != 0 && --left == 0; };
        fake_rdmacm::before_each_call(
            [is_to_fail](const char* /*function*/) { return is_to_fail() ? EREMOTEIO : 0; });
        testing::before_each_call([is_to_fail](const char* verb) {
            if (is_to_fail()) {
                testing::fail_next(verb, EREMOTEIO);
            }
        });
    }

    /// Takes a step, and looks for what it has left.
    template <class Step>
    static std::optional<Error> checked(const Step& step, const Arm& arm, const Arm& disarm) {
        const std::size_t live_before = live();
        const auto descriptors = testing::open_descriptors();
        auto error = error_of([&] { step(arm); });
        disarm();
        const std::string after = error ? error->what() : "success";
        EXPECT_EQ(live(), live_before) << "after " << after;
        EXPECT_EQ(testing::open_descriptors(), descriptors) << "after " << after;
        EXPECT_EQ(unacknowledged_events(), 0U) << "after " << after;
        return error;
    }
};

const Calls make_ready{"rdma_init_qp_attr", "ibv_modify_qp",     "rdma_init_qp_attr",
                       "ibv_modify_qp",     "rdma_init_qp_attr", "ibv_modify_qp"};

Calls operator+(Calls first, const Calls& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

TEST_F(CmFaults, OfListenerAtOneAddressOrAll) {
    const auto listen_at = [](const char* address) {
        return [address](const Arm& arm) {
            arm();
            const Listener listener(address, 0);
        };
    };
    const Calls calls{"rdma_create_event_channel", "rdma_create_id", "rdma_set_option",
                      "rdma_bind_addr", "rdma_listen"};
    fail_each_call(listen_at("192.0.2.1"), calls, {"getaddrinfo", "fcntl", "fcntl"});
    fail_each_call(listen_at(""), calls, {"fcntl", "fcntl"});
}

TEST_F(CmFaults, OfListenerWithoutIpv6) {
    fail_each_call(
        [](const Arm& arm) {
            fake_rdmacm::fail_next("rdma_bind_addr", EADDRNOTAVAIL);
            arm();
            const Listener listener("", 0);
        },
        {"rdma_create_event_channel", "rdma_create_id", "rdma_set_option",
         "rdma_create_event_channel", "rdma_create_id", "rdma_set_option", "rdma_bind_addr",
         "rdma_listen"},
        {"fcntl", "fcntl", "fcntl", "fcntl"});
}

TEST_F(CmFaults, OfListenerThatWasMovedFrom) {
    Listener listener("192.0.2.1", 0);
    const Listener moved = std::move(listener);
    // NOLINTBEGIN(bugprone-use-after-move)
    EXPECT_THAT(error_of([&] { static_cast<void>(listener.port()); }),
                fails_with("Listener::port", EBADF));
    EXPECT_THAT(error_of([&] { static_cast<void>(listener.next(long_enough)); }),
                fails_with("Listener::next", EBADF));
    // NOLINTEND(bugprone-use-after-move)
}

TEST_F(CmFaults, OfWaitingForARequest) {
    fail_each_call(
        [](const Arm& arm) {
            Listener listener("192.0.2.1", 0);
            fake_rdmacm::request_connection(listener.native(), "hello");
            arm();
            const ConnectionRequest request = listener.next(long_enough);
            EXPECT_EQ(request.private_data().size(), 5U);
        },
        {"rdma_get_cm_event", "rdma_create_event_channel", "rdma_migrate_id"},
        {"poll", "fcntl", "fcntl"});
}

TEST_F(CmFaults, OfRoute) {
    fail_each_call(
        [](const Arm& arm) {
            arm();
            static_cast<void>(route());
        },
        {"rdma_create_event_channel", "rdma_create_id", "rdma_resolve_addr", "rdma_get_cm_event",
         "rdma_resolve_route", "rdma_get_cm_event"},
        {"getaddrinfo", "fcntl", "fcntl", "poll"});
}

TEST_F(CmFaults, OfConnecting) {
    fail_each_call(
        [this](const Arm& arm) {
            Route way = route();
            PreparedQueuePair prepared = prepare();
            arm();
            const auto error = error_of([&] {
                static_cast<void>(std::move(way).connect(std::move(prepared), {}, long_enough));
            });
            EXPECT_EQ(way.native(), nullptr); // NOLINT(bugprone-use-after-move): it is gone
            if (error) {
                throw Error(*error);
            }
        },
        Calls{"rdma_connect", "rdma_get_cm_event"} + make_ready +
            Calls{"rdma_establish", "ibv_query_qp"},
        {"poll"});
}

TEST_F(CmFaults, OfAccepting) {
    fail_each_call(
        [this](const Arm& arm) {
            Listener listener("192.0.2.1", 0);
            ConnectionRequest incoming = request(listener);
            PreparedQueuePair prepared = prepare();
            arm();
            const auto error = error_of([&] {
                static_cast<void>(std::move(incoming).accept(std::move(prepared), {}, long_enough));
            });
            EXPECT_EQ(incoming.native(), nullptr); // NOLINT(bugprone-use-after-move): it is gone
            if (error) {
                throw Error(*error);
            }
        },
        make_ready + Calls{"rdma_accept", "rdma_get_cm_event", "ibv_query_qp"}, {"poll"});
}

TEST_F(CmFaults, OfRejecting) {
    fail_each_call(
        [](const Arm& arm) {
            Listener listener("192.0.2.1", 0);
            ConnectionRequest incoming = request(listener);
            arm();
            std::move(incoming).reject("no");
        },
        {"rdma_reject"}, {});
}

TEST_F(CmFaults, OfDisconnecting) {
    fail_each_call(
        [this](const Arm& arm) {
            Connection connection = connected();
            arm();
            connection.disconnect(long_enough);
        },
        // The first looks for a peer that has disconnected already.
        {"rdma_get_cm_event", "rdma_disconnect", "ibv_modify_qp", "rdma_get_cm_event"}, {"poll"});
}

/// Takes the events of @p channel up to one of @p type. Throws the error of a failed connection.
cm::ChannelEvent take(cm::EventChannel& channel, cm::EventType type) {
    while (std::optional<cm::ChannelEvent> event = channel.next_event()) {
        if (event->error) {
            throw Error(*event->error);
        }
        if (event->type == type) {
            return *std::move(event);
        }
    }
    ADD_FAILURE() << "no event of type " << to_string(type);
    return {};
}

TEST_F(CmFaults, OfListenerOnAChannel) {
    fail_each_call(
        [](const Arm& arm) {
            arm();
            const cm::EventChannel channel;
            const cm::AsyncListener listener(channel, "192.0.2.1", 0);
        },
        {"rdma_create_event_channel", "rdma_create_id", "rdma_set_option", "rdma_bind_addr",
         "rdma_listen"},
        {"fcntl", "fcntl", "getaddrinfo"});
}

TEST_F(CmFaults, OfConnectingOnAChannel) {
    fail_each_call(
        [this](const Arm& arm) {
            cm::EventChannel channel;
            PreparedQueuePair prepared = prepare();
            arm();
            cm::AsyncConnection connection(channel, "192.0.2.9", 4711, long_enough);
            static_cast<void>(take(channel, cm::EventType::resolved));
            connection.connect(std::move(prepared));
            static_cast<void>(take(channel, cm::EventType::established));
        },
        Calls{"rdma_create_id", "rdma_resolve_addr", "rdma_get_cm_event", "rdma_resolve_route",
              "rdma_get_cm_event", "rdma_connect", "rdma_get_cm_event"} +
            make_ready + Calls{"rdma_establish", "ibv_query_qp"},
        {"getaddrinfo", "poll"});
}

TEST_F(CmFaults, OfAcceptingOnAChannel) {
    fail_each_call(
        [this](const Arm& arm) {
            cm::EventChannel channel;
            const cm::AsyncListener listener(channel, "192.0.2.1", 0);
            fake_rdmacm::request_connection(listener.native(), "hello");
            PreparedQueuePair prepared = prepare();
            arm();
            cm::ChannelEvent event = take(channel, cm::EventType::connect_request);
            if (event.request) {
                EXPECT_EQ(event.request->private_data().size(), 5U);
                event.request->accept(std::move(prepared));
                static_cast<void>(take(channel, cm::EventType::established));
            }
        },
        Calls{"rdma_get_cm_event"} + make_ready +
            Calls{"rdma_accept", "rdma_get_cm_event", "ibv_query_qp"},
        {"poll"});
}

TEST_F(CmFaults, OfDisconnectingOnAChannel) {
    fail_each_call(
        [this](const Arm& arm) {
            cm::EventChannel channel;
            cm::AsyncConnection connection(channel, "192.0.2.9", 4711, long_enough);
            static_cast<void>(take(channel, cm::EventType::resolved));
            connection.connect(prepare());
            static_cast<void>(take(channel, cm::EventType::established));
            arm();
            connection.disconnect();
            static_cast<void>(take(channel, cm::EventType::disconnected));
        },
        {"rdma_disconnect", "ibv_modify_qp", "rdma_get_cm_event"}, {"poll"});
}

} // namespace
} // namespace rdmabuf
