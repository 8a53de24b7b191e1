// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>

#include "results.hpp"
#include "scale_system.hpp"
#include "socket.hpp"

namespace {

using namespace rdmabuf::transport;

constexpr std::chrono::seconds connect_limit{60};
constexpr std::size_t message_size = sizeof(std::uint64_t);

Endpoint open_endpoint() {
    // The send queues are as long as those that transport_scale.cpp configures for UCX. The
    // channels keep no sockets, because each socket would need a descriptor.
    return value(Endpoint::open(rdmabuf::Context::open_first(), rdmabuf::Resolver(),
                                {.send_depth = 32, .keep_sockets = false}));
}

class LibraryScale final : public ScaleSystem {
  public:
    explicit LibraryScale(std::span<const int> sockets)
        : endpoint_(open_endpoint()),
          listener_(value(endpoint_.listen("127.0.0.1"))),
          registered_(value(endpoint_.register_memory(words_.data(), sizeof words_))) {
        for (const int socket : sockets) {
            send_all(socket, listener_.handle().bytes());
        }
    }

    void connect(std::size_t count) override {
        channels_.reserve(count);
        while (channels_.size() < count) {
            channels_.push_back(value(listener_.accept(connect_limit)));
        }
    }
    void progress() override { endpoint_.progress(); }
    void exchange() override {
        std::array<Request, busy_connections> receives;
        for (std::size_t i = 0; i < busy_connections; ++i) {
            check(busy(i).irecv(registered_, &words_[i], message_size, 1, receives[i]));
            Request sent;
            check(busy(i).isend(registered_, &words_[i], message_size, 1, sent));
        }
        for (std::size_t i = 0; i < busy_connections; ++i) {
            Completion completion;
            while (!(completion = busy(i).test(receives[i])).done) {
                endpoint_.wait(std::chrono::milliseconds(20));
            }
            check(completion.error);
        }
    }

  private:
    [[nodiscard]] Channel& busy(std::size_t i) {
        return channels_[i * (channels_.size() - 1) / busy_connections];
    }

    std::array<std::uint64_t, busy_connections> words_{};
    Endpoint endpoint_;
    Listener listener_;
    Memory registered_;
    std::vector<Channel> channels_;
};

void run_peer(int socket, std::size_t count) {
    const Endpoint endpoint = open_endpoint();
    std::array<std::byte, Handle::wire_size> bytes{};
    receive_all(socket, bytes);
    const Handle handle = value(Handle::decode(bytes));
    struct Echo {
        Channel channel;
        std::uint64_t word;
        Request request;
    };
    std::vector<Echo> echoes;
    echoes.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        echoes.push_back({value(endpoint.connect(handle, connect_limit)), 0, {}});
    }
    const Memory registered =
        value(endpoint.register_memory(echoes.data(), echoes.size() * sizeof(Echo)));
    const auto receive = [&](Echo& echo) {
        check(echo.channel.irecv(registered, &echo.word, message_size, 1, echo.request, &echo));
    };
    for (Echo& echo : echoes) {
        receive(echo);
    }
    std::array<Completion, 16> completions{};
    while (!is_closed(socket)) {
        const std::size_t done = endpoint.poll_completions(completions);
        for (const Completion& completion : std::span(completions).first(done)) {
            if (completion.error) {
                return; // The measured process has closed its channels.
            }
            Echo& echo = *static_cast<Echo*>(completion.context);
            Request sent;
            check(echo.channel.isend(registered, &echo.word, message_size, 1, sent));
            receive(echo);
        }
        if (done == 0) {
            endpoint.wait(std::chrono::milliseconds(20));
        }
    }
}

} // namespace

const ScaleFunctions library_scale = {
    .name = "rdmabuf",
    .make = [](std::span<const int> sockets) -> std::unique_ptr<ScaleSystem> {
        return std::make_unique<LibraryScale>(sockets);
    },
    .run_peer = run_peer};
