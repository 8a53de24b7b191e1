// SPDX-License-Identifier: BSD-3-Clause
//
// Sends a message to another process and back, many times, in memory of any type. In two terminals:
//
//   ping_pong memfd                 waits for the other process
//   ping_pong memfd 127.0.0.1       connects to it, and prints the time of half a round trip
//
// The first argument is "host" or the name of an exporter, such as udmabuf or cuda. The two
// processes may use different memory. The second argument is the IP address of the waiting process.
// memfd needs softverbs: begin both commands with
//
//   LD_PRELOAD=build/release/softverbs/libsoftverbs.so build/release/examples/ping_pong
//
// The queue pairs are RC queue pairs, or SRD queue pairs on an EFA device, which has no RC.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>

namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t tcp_port = 18521;
constexpr std::size_t message_size = 8192; // SRD: at most the MTU of the port, 8928 on EFA
constexpr int rounds = 1000;

// Registered memory for two messages: the outgoing message at offset 0, and the incoming message
// behind it.
class Memory {
  public:
    Memory(const rdmabuf::ProtectionDomain& pd, const std::string& kind) {
        rdmabuf::Resolver resolver = rdmabuf::Resolver::system();
        resolver.add(rdmabuf::make_memfd_exporter());
        if (kind == "host") {
            host_.resize(2 * message_size);
        } else {
            buffer_ = resolver.allocator(kind)->allocate(2 * message_size);
        }
        const auto address =
            buffer_ ? buffer_->address() : reinterpret_cast<std::uintptr_t>(host_.data());
        // Only the address is needed from here on: the resolver finds the exporter of the memory,
        // and register_memory() chooses the registration path. Sends and receives need local access
        // only.
        region_ = rdmabuf::register_memory(pd, resolver, address, 2 * message_size);
    }

    [[nodiscard]] ibv_sge outgoing() const { return region_->sge(0, message_size); }
    [[nodiscard]] ibv_sge incoming() const { return region_->sge(message_size, message_size); }
    [[nodiscard]] const char* path() const { return to_string(region_->path()); }

    // copy_in() and copy_out() also work with memory that the CPU cannot map, such as GPU memory.
    void write_outgoing(std::span<const std::byte> message) {
        buffer_ ? buffer_->copy_in(0, message)
                : static_cast<void>(std::ranges::copy(message, host_.begin()));
    }
    [[nodiscard]] std::vector<std::byte> read_incoming() const {
        std::vector<std::byte> message(message_size);
        buffer_ ? buffer_->copy_out(message_size, message)
                : static_cast<void>(
                      std::ranges::copy(std::span(host_).last(message_size), message.begin()));
        return message;
    }

  private:
    std::vector<std::byte> host_;
    std::optional<rdmabuf::Buffer> buffer_;
    std::optional<rdmabuf::Registration> region_; // deregistered before the memory is freed
};

// The queue pair of this process, and the address of the other process.
struct Connection {
    rdmabuf::QueuePair qp;
    rdmabuf::QueuePairAddress peer;
    // Set only for an SRD queue pair, which is not connected: each request has a destination.
    std::optional<rdmabuf::AddressHandle> ah;

    void receive(const ibv_sge& sge) const { qp.post_recv(sge).throw_if_failed(); }
    void send(const ibv_sge& sge) const {
        (ah ? qp.post_send_to(sge, ah->destination(peer)) : qp.post_send(sge)).throw_if_failed();
    }
};

Connection connect(rdmabuf::PreparedQueuePair prepared, const rdmabuf::QueuePairAddress& peer) {
    if (peer.type != rdmabuf::QueuePairType::scalable_reliable_datagram) {
        return {std::move(prepared).connect(peer), peer, std::nullopt};
    }
    rdmabuf::AddressHandle ah(prepared.protection_domain(), peer, {});
    return {std::move(prepared).activate(), peer, std::move(ah)};
}

// Waits for @p count completions. @throws std::runtime_error after 30 s or if a request failed
void wait_for(const rdmabuf::CompletionQueue& cq, std::size_t count) {
    for (; count > 0; --count) {
        const auto completion = cq.wait_one(30s);
        if (!completion) {
            throw std::runtime_error("the other process does not answer");
        }
        if (!rdmabuf::succeeded(*completion)) {
            throw std::runtime_error(rdmabuf::describe(*completion));
        }
    }
}

// Sends each message after the answer to the previous one, and prints the mean time of half a round
// trip.
void ping(const Connection& connection, const rdmabuf::CompletionQueue& cq, Memory& memory) {
    std::vector<std::byte> message(message_size);
    for (std::size_t i = 0; i < message.size(); ++i) {
        message[i] = static_cast<std::byte>(i % 251);
    }
    memory.write_outgoing(message);
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < rounds; ++round) {
        connection.send(memory.outgoing());
        wait_for(cq, 2); // the send, and the receive of the answer
        // This receive is for the answer to the next message. The last receive stays unused.
        connection.receive(memory.incoming());
    }
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    if (memory.read_incoming() != message) {
        throw std::runtime_error("the message that came back differs from the one sent");
    }
    std::printf("%d messages of %zu bytes, half a round trip in %.2f us\n", rounds, message_size,
                time.count() / rounds / 2);
}

// Sends each message back from the memory in which it was received.
void pong(const Connection& connection, const rdmabuf::CompletionQueue& cq, const Memory& memory) {
    for (int round = 0; round < rounds; ++round) {
        wait_for(cq, round == 0 ? 1 : 2); // a receive, and the send of the previous answer
        // The peer sends the next message only after it has received this answer, so the next
        // receive can use the same memory.
        connection.receive(memory.incoming());
        connection.send(memory.incoming());
    }
}

} // namespace

int main(int argc, char** argv) try {
    if (argc < 2 || argc > 3) {
        std::fprintf(stderr, "usage: ping_pong host|EXPORTER [ADDRESS]\n");
        return 2;
    }
    const bool connects = argc == 3;
    const rdmabuf::Context context = rdmabuf::Context::open_first();
    const rdmabuf::ProtectionDomain pd(context);
    const rdmabuf::CompletionQueue cq(context);
    Memory memory(pd, argv[1]);

    const auto type = context.srd() ? rdmabuf::QueuePairType::scalable_reliable_datagram
                                    : rdmabuf::QueuePairType::reliable_connected;
    auto prepared = rdmabuf::QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq, .type = type});
    // Post the first receive before the processes exchange the addresses, so that the peer cannot
    // send too early.
    prepared.post_recv(memory.incoming()).throw_if_failed();

    // The processes exchange the addresses of their queue pairs over TCP.
    rdmabuf::bootstrap::Channel channel =
        connects ? rdmabuf::bootstrap::Channel::connect(argv[2], tcp_port, 30s)
                 : rdmabuf::bootstrap::Listener(tcp_port).accept(rdmabuf::wait_forever);
    const auto peer = channel.exchange(prepared.address());
    const Connection connection = connect(std::move(prepared), peer);
    channel.barrier();

    std::printf("%s, registered as %s on %s\n", argv[1], memory.path(),
                context.device_name().c_str());
    connects ? ping(connection, cq, memory) : pong(connection, cq, memory);
    // Without this barrier, a process could exit while the other process still waits for an
    // acknowledgement.
    channel.barrier();
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
