// SPDX-License-Identifier: BSD-3-Clause
#include "scale_system.hpp"
#include "socket.hpp"

#if RDMABUF_BENCHMARK_HAVE_UCP

#include <poll.h>

#include <array>
#include <cstdint>
#include <vector>

#include "ucp_worker.hpp"

namespace {

constexpr std::size_t message_size = sizeof(std::uint64_t);
/// The tag of the message that a peer sends on a new connection.
constexpr ucp_tag_t hello_tag = ~ucp_tag_t{0};

std::vector<std::byte> receive_address(int socket) {
    std::uint32_t length = 0;
    receive_all(socket, std::as_writable_bytes(std::span(&length, 1)));
    std::vector<std::byte> address(length);
    receive_all(socket, address);
    return address;
}
void send_address(int socket, const std::vector<std::byte>& address) {
    const auto length = static_cast<std::uint32_t>(address.size());
    send_all(socket, std::as_bytes(std::span(&length, 1)));
    send_all(socket, address);
}

/// A worker that can sleep until a message arrives.
class SleepingWorker {
  public:
    SleepingWorker() { check(ucp_worker_get_efd(worker_.worker, &events_), "ucp_worker_get_efd"); }

    [[nodiscard]] std::vector<std::byte> address() const { return worker_.address(); }
    [[nodiscard]] ucp_ep_h connect(const std::vector<std::byte>& to) const {
        return worker_.connect(to);
    }
    [[nodiscard]] ucp_worker_h native() const { return worker_.worker; }
    unsigned progress() const { return ucp_worker_progress(worker_.worker); }
    static void* send(ucp_ep_h endpoint, const std::uint64_t* word, ucp_tag_t tag) {
        const ucp_request_param_t parameters{};
        return ucp_tag_send_nbx(endpoint, word, message_size, tag, &parameters);
    }
    void* receive(std::uint64_t* word, ucp_tag_t tag) const {
        const ucp_request_param_t parameters{};
        return ucp_tag_recv_nbx(worker_.worker, word, message_size, tag, ~ucp_tag_t{0},
                                &parameters);
    }
    /// Sleeps until an event arrives, @p socket is readable, or 20 ms have passed.
    void sleep(int socket = -1) const {
        if (ucp_worker_arm(worker_.worker) != UCS_OK) {
            return; // Events have arrived already.
        }
        std::array<pollfd, 2> ready{{{events_, POLLIN, 0}, {socket, POLLIN, 0}}};
        ::poll(ready.data(), ready.size(), 20);
    }
    void wait(void* request) const {
        while (!completed(request)) {
            if (progress() == 0) {
                sleep();
            }
        }
    }

  private:
    UcpWorker worker_{UCP_FEATURE_WAKEUP};
    int events_ = -1;
};

/// The workers connect to each other: UCX pairs the endpoints of both sides in the order in which
/// they were created. A message on each endpoint completes its connection.
class UcxScale final : public ScaleSystem {
  public:
    explicit UcxScale(std::span<const int> sockets) {
        for (const int socket : sockets) {
            send_address(socket, self_.address());
            peers_.push_back({.socket = socket, .address = receive_address(socket)});
        }
    }

    void connect(std::size_t count) override {
        endpoints_.reserve(count);
        std::vector<std::uint32_t> more(peers_.size());
        for (std::size_t i = endpoints_.size(); i < count; ++i) {
            ++more[i % peers_.size()];
        }
        for (std::size_t i = 0; i < peers_.size(); ++i) {
            send_all(peers_[i].socket, std::as_bytes(std::span(&more[i], 1)));
        }
        std::size_t hellos = count - endpoints_.size();
        std::vector<void*> sends;
        while (endpoints_.size() < count) {
            endpoints_.push_back(self_.connect(peers_[endpoints_.size() % peers_.size()].address));
            sends.push_back(SleepingWorker::send(endpoints_.back(), &hello_, hello_tag));
        }
        for (std::uint64_t word = 0; hellos > 0; --hellos) {
            self_.wait(self_.receive(&word, hello_tag));
        }
        for (void* const request : sends) {
            self_.wait(request);
        }
    }
    void progress() override { self_.progress(); }
    void exchange() override {
        std::array<void*, busy_connections> receives{};
        std::array<void*, busy_connections> sends{};
        for (std::size_t i = 0; i < busy_connections; ++i) {
            // `busy` is the index of the connection in endpoints_. The message has the tag busy /
            // peers_.size(), the index of the same connection at the peer. It contains `i`, which
            // the peer uses as the tag of its reply.
            const std::size_t busy = i * (endpoints_.size() - 1) / busy_connections;
            receives.at(i) = self_.receive(&received_.at(i), i);
            sent_.at(i) = i;
            sends.at(i) =
                SleepingWorker::send(endpoints_[busy], &sent_.at(i), busy / peers_.size());
        }
        for (std::size_t i = 0; i < busy_connections; ++i) {
            self_.wait(sends.at(i));
            self_.wait(receives.at(i));
        }
    }

  private:
    struct Peer {
        int socket;
        std::vector<std::byte> address;
    };

    SleepingWorker self_;
    std::uint64_t hello_ = 0;
    std::array<std::uint64_t, busy_connections> received_{};
    std::array<std::uint64_t, busy_connections> sent_{};
    std::vector<Peer> peers_;
    std::vector<ucp_ep_h> endpoints_;
};

void run_peer(int socket, std::size_t count) {
    const std::vector<std::byte> measured = receive_address(socket);
    const SleepingWorker self;
    send_address(socket, self.address());
    struct Echo {
        ucp_ep_h endpoint;
        std::uint64_t word;
        void* sent;
    };
    std::vector<Echo> echoes;
    echoes.reserve(count);
    while (!is_closed(socket)) {
        std::uint32_t more = 0;
        if (::recv(socket, &more, sizeof more, MSG_DONTWAIT) == sizeof more) {
            for (; more > 0; --more) {
                echoes.push_back({self.connect(measured), 0, nullptr});
                Echo& echo = echoes.back();
                echo.sent = SleepingWorker::send(echo.endpoint, &echo.word, hello_tag);
            }
        }
        bool idle = self.progress() == 0;
        ucp_tag_recv_info_t info{};
        // The mask 0 accepts messages with any tag.
        while (ucp_tag_message_h message = ucp_tag_probe_nb(self.native(), 0, 0, 1, &info)) {
            idle = false;
            std::uint64_t word = 0;
            const ucp_request_param_t parameters{};
            self.wait(
                ucp_tag_msg_recv_nbx(self.native(), &word, sizeof word, message, &parameters));
            if (info.sender_tag != hello_tag) {
                Echo& echo = echoes.at(info.sender_tag);
                self.wait(echo.sent);
                echo.word = word;
                echo.sent = SleepingWorker::send(echo.endpoint, &echo.word, word);
            }
        }
        if (idle) {
            self.sleep(socket);
        }
    }
    for (const Echo& echo : echoes) {
        static_cast<void>(completed(echo.sent));
    }
}

} // namespace

const ScaleFunctions ucx_scale = {
    .name = "UCX rc_verbs",
    .make = [](std::span<const int> sockets) -> std::unique_ptr<ScaleSystem> {
        return std::make_unique<UcxScale>(sockets);
    },
    .run_peer = run_peer};

#else

const ScaleFunctions ucx_scale = {.name = "UCX rc_verbs", .make = nullptr, .run_peer = nullptr};

#endif
