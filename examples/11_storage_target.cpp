// SPDX-License-Identifier: BSD-3-Clause
//
// Runs a storage target that accepts connections without blocking, in one thread with epoll and one
// event channel. Each initiator receives the rkey of the disk as private data, and reads a block by
// RDMA.
//
//   11_storage_target ADDRESS    an IP address of the RDMA device; 127.0.0.1 on softverbs
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

#include <rdmabuf/cm.hpp>
#include <rdmabuf/cm_channel.hpp>
#include <rdmabuf/rdmabuf.hpp>

using namespace rdmabuf;
using namespace std::chrono_literals;

constexpr std::size_t block_size = 4096, blocks = 16; // a separate initiator reads each block

void run_target(const std::string& address, int pipe) {
    cm::EventChannel channel;
    const cm::AsyncListener listener(channel, address, 0);
    const std::uint16_t port = listener.port();
    static_cast<void>(::write(pipe, &port, sizeof port));

    const Context context = Context::borrow(listener.native()->verbs); // the device of the address
    const ProtectionDomain pd(context);
    const CompletionQueue cq(context);
    std::vector<std::byte> disk(blocks * block_size);
    for (std::size_t i = 0; i < disk.size(); ++i) {
        disk[i] = static_cast<std::byte>(i / block_size);
    }
    const MemoryRegion region(pd, disk.data(), disk.size(), {.access = Access::remote_read});

    const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC)); // a target can add other descriptors
    epoll_event readable{.events = EPOLLIN, .data = {.fd = channel.fd()}};
    ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, channel.fd(), &readable);
    std::map<const rdma_cm_id*, cm::AsyncConnection> initiators;
    for (std::size_t served = 0; served < blocks;) {
        if (::epoll_wait(epoll.get(), &readable, 1, 30000) != 1) {
            throw Error(ETIMEDOUT, "epoll_wait", "no initiator came");
        }
        while (std::optional<cm::ChannelEvent> event = channel.next_event()) {
            if (event->type == cm::EventType::connect_request) {
                cm::AsyncConnection peer = *std::move(event->request);
                QueuePairOptions options{.send_cq = cq, .recv_cq = cq};
                options.port = peer.port();
                peer.accept(QueuePair::prepare(pd, options), region.remote().encode());
                initiators.emplace(peer.native(), std::move(peer));
            } else if (event->type != cm::EventType::established) { // disconnected, or failed
                served += initiators.erase(event->id);
            }
        }
    }
}

bool read_block(const std::string& address, std::uint16_t port, std::size_t block) {
    cm::Route route(address, port, 10s);
    const ProtectionDomain pd(route.context());
    const CompletionQueue cq(route.context());
    std::vector<std::byte> buffer(block_size, std::byte{0xff});
    const MemoryRegion region(pd, buffer.data(), buffer.size());
    QueuePairOptions options{.send_cq = cq, .recv_cq = cq};
    options.port = route.port();
    auto connection = std::move(route).connect(QueuePair::prepare(pd, options), {}, 10s);
    const auto key = connection.private_data().first(RemoteRegion::wire_size);
    const RemoteAddress from = RemoteRegion::decode(key).value().at(block * block_size);
    const Status posted = connection.queue_pair().post_read(region.sge(), from);
    const std::optional<WorkCompletion> done = cq.wait_one(10s);
    return posted && done && succeeded(*done) &&
           std::ranges::count(buffer, static_cast<std::byte>(block)) == block_size;
}

int main(int argc, char** argv) try {
    const std::string address = argc > 1 ? argv[1] : "127.0.0.1";
    std::array<int, 2> pipe{};
    // The program calls fork(2) before it opens a device, because a child cannot use verbs objects
    // of its parent.
    const pid_t target = ::pipe(pipe.data()) == 0 ? ::fork() : -1;
    ::close(pipe[target == 0 ? 0 : 1]);
    if (target == 0) {
        return run_target(address, pipe[1]), 0;
    }
    std::uint16_t port = 0;
    static_cast<void>(::read(pipe[0], &port, sizeof port));
    std::size_t block = 0;
    while (block < blocks && read_block(address, port, block)) {
        ++block;
    }
    int status = 1;
    std::printf("%zu of %zu blocks were read from the target\n", block, blocks);
    return ::waitpid(target, &status, 0) == target && status == 0 && block == blocks ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
