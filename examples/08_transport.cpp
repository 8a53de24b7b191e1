// SPDX-License-Identifier: BSD-3-Clause
//
// Sends a message between two processes. The buffers are allocated by the exporter that the
// argument names ("cuda", "udmabuf", "drm", ...), or by the first available exporter.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>

#include "support/transport.hpp"

using namespace rdmabuf::transport;
using namespace examples;
using namespace std::chrono_literals;

int main(int argc, char** argv) try {
    // The program calls fork(2) before it opens a device, because a child cannot use RDMA devices
    // or GPUs that its parent opened.
    std::array<int, 2> pipe{};
    const pid_t sender = ::pipe(pipe.data()) == 0 ? ::fork() : -1;
    ::close(pipe[sender == 0 ? 1 : 0]);

    rdmabuf::Resolver resolver = rdmabuf::Resolver::system();
    resolver.add(rdmabuf::make_memfd_exporter()); // for softverbs, which registers memfds
    const auto endpoint =
        value_of(Endpoint::open(rdmabuf::Context::open_first(), resolver, {.timeout = 10s}));
    std::vector<std::byte> message(1000003, std::byte{42});
    const auto buffer = allocate(resolver, argc > 1 ? argv[1] : "", message.size());
    auto* address = reinterpret_cast<std::byte*>(buffer.address()); // can be a GPU address
    const Memory memory = value_of(endpoint.register_memory(address, message.size()));
    Request request;
    if (sender == 0) {
        buffer.copy_in(0, message);
        std::array<std::byte, Handle::wire_size> bytes{};
        static_cast<void>(::read(pipe[0], bytes.data(), bytes.size()));
        Channel channel = value_of(endpoint.connect(Handle::decode(bytes).value(), 10s));
        finish(channel, channel.isend(memory, address, message.size(), 1, request), request);
        return 0;
    }
    Listener listener = value_of(endpoint.listen());
    static_cast<void>(::write(pipe[1], listener.handle().bytes().data(), Handle::wire_size));
    Channel channel = value_of(listener.accept(10s));
    finish(channel, channel.irecv(memory, address, message.size(), 1, request), request);
    std::vector<std::byte> received(message.size());
    buffer.copy_out(0, received);
    const std::string owner(resolver.find(buffer.address()).exporter->name());
    std::printf("%zu bytes are in memory of %s\n", received.size(), owner.c_str());
    int status = 1;
    ::waitpid(sender, &status, 0);
    return status == 0 && received == message ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
