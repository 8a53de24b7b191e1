// SPDX-License-Identifier: BSD-3-Clause
// A program that is compiled with -fno-exceptions -fno-rtti sends a message to itself. All
// functions that the program calls report errors by their return values. That each verbs call of
// set-up may fail is proven by setup_faults_test.cpp.
#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "this is to be compiled with -fno-exceptions -fno-rtti"
#endif

#include <softverbs/softverbs.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport.hpp>

#include "waiting.hpp"

namespace {

using namespace std::chrono_literals;
using namespace rdmabuf;
using namespace rdmabuf::transport;

int failures = 0;

void expect(bool holds, const char* what) {
    if (!holds) {
        std::fprintf(stderr, "this is false: %s\n", what);
        ++failures;
    }
}

void sends_a_message(const Endpoint& endpoint) {
    auto listener = endpoint.listen("127.0.0.1");
    expect(listener.ok(), "a listener listens");
    auto connector = endpoint.start_connect(listener->handle());
    expect(connector.ok(), "a connector starts to connect");
    std::optional<Channel> here;
    std::optional<Channel> there;
    while (!here || !there) {
        if (!here && connector->try_connect(here).value() > EAGAIN) {
            return expect(false, connector->error_info().message().c_str());
        }
        if (!there && listener->try_accept(there).value() > EAGAIN) {
            return expect(false, listener->error_info().message().c_str());
        }
    }

    std::array<char, 64> bytes{"without exceptions"};
    const auto memory = endpoint.register_memory(bytes.data(), bytes.size());
    expect(memory.ok(), memory.message().c_str());
    Request receive;
    Request send;
    expect(!there->irecv(*memory, bytes.data() + 32, 32, 1, receive), "a receive is posted");
    expect(!here->isend(*memory, bytes.data(), 32, 1, send), "a send is posted");
    expect(!there->wait(receive, rdmabuf::testing::time_limit).error, "a message arrives");
    expect(!here->wait(send, rdmabuf::testing::time_limit).error, "a message leaves");
    expect(std::strcmp(bytes.data(), bytes.data() + 32) == 0, "its bytes are those that were sent");
}

/// Connects two ends by exchanged addresses. @return true if both are connected
bool connect_by_addresses(const Endpoint& endpoint) {
    auto one = endpoint.prepare_channel();
    auto other = endpoint.prepare_channel();
    if (!one || !other) {
        return false;
    }
    const ChannelAddress address = one->address();
    const auto here = std::move(*one).connect(other->address());
    const auto there = std::move(*other).connect(address);
    return here.ok() && there.ok();
}

} // namespace

int main() {
    const auto missing = attempt([] { return Context::open("no such device"); });
    expect(missing.code().value() == ENODEV, missing.message().c_str());
    expect(missing.message().find("soft0") != std::string::npos,
           "the message lists those there are");
    auto context = attempt([] { return Context::open_first(); });
    expect(context.ok(), context.message().c_str());
    if (!context) {
        return 1;
    }
    const auto refused = Endpoint::open(*context, Resolver(), {.depth = 0});
    expect(refused.code().value() == EINVAL, "options that cannot be are EINVAL");
    // Otherwise a failed ibv_create_qp is called again without inline data.
    auto endpoint = Endpoint::open(*context, Resolver(), {.inline_data = 0, .linger = 1ms});
    expect(endpoint.ok(), endpoint.message().c_str());
    const auto nothing = endpoint->register_memory(nullptr, 0);
    expect(nothing.code().value() == EINVAL, "no bytes cannot be registered");
    sends_a_message(*endpoint);
    expect(connect_by_addresses(*endpoint), "two ends connect by their addresses");
    expect(softverbs_fail_call("ibv_create_qp", 1, ENOMEM) == 0, "a failure is planned");
    expect(!connect_by_addresses(*endpoint), "a failed call is reported by a return value");
    return failures == 0 ? 0 : 1;
}
