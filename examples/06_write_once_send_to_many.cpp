// SPDX-License-Identifier: BSD-3-Clause
//
// Sends one buffer to several peers. The data crosses the PCIe of the sender only once, into the
// device memory of the NIC, and the NIC sends the data from this memory to all peers. From host
// memory, the NIC would read the data over PCIe once for each peer.
#include <cstdio>
#include <list>
#include <vector>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "support/loopback.hpp"

namespace {

constexpr std::size_t message_size = 4096;
constexpr int peer_count = 4;

// Holds the two ends of the connection to a peer (the sending end and the peer's end), and the
// receive buffer of the peer.
struct Peer {
    explicit Peer(const rdmabuf::ProtectionDomain& pd)
        : ends(examples::connect_loopback(pd)),
          inbox(message_size),
          region(pd, inbox.data(), inbox.size()) {
        ends.second.qp.post_recv(region.sge()).throw_if_failed();
    }

    std::pair<examples::End, examples::End> ends; // the sending end, the peer's end
    std::vector<std::byte> inbox;
    rdmabuf::MemoryRegion region;
};

} // namespace

int main() try {
    const rdmabuf::Context context = rdmabuf::Context::open_first();
    const rdmabuf::ProtectionDomain pd(context);
    std::list<Peer> peers;
    for (int i = 0; i < peer_count; ++i) {
        peers.emplace_back(pd);
    }

    std::vector<std::byte> message(message_size);
    for (std::size_t i = 0; i < message.size(); ++i) {
        message[i] = static_cast<std::byte>(i * 7 + i / 256);
    }
    rdmabuf::DeviceMemory memory(context, message_size);
    const rdmabuf::DeviceMemoryMR region(pd, memory);
    memory.copy_in(0, message); // the only transfer over the PCIe of the sender

    // All sends are posted before the first wait, so that the NIC executes them at the same time.
    for (const Peer& peer : peers) {
        peer.ends.first.qp.post_send(region.sge()).throw_if_failed();
    }
    int right = 0;
    for (const Peer& peer : peers) {
        peer.ends.first.wait();
        peer.ends.second.wait();
        if (peer.inbox == message) {
            ++right;
            std::printf("  peer on QP %u has all %zu bytes\n", peer.ends.second.qp.number(),
                        peer.inbox.size());
        }
    }
    std::printf("written once into %s, sent to %d peers, right at %d\n",
                context.device_name().c_str(), peer_count, right);
    return right == peer_count ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
