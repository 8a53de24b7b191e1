// SPDX-License-Identifier: BSD-3-Clause
//
// Writes into a dma-buf of a peer by RDMA. Both ends of the connection are in this process. A peer
// in another process would send its encoded RemoteRegion, which has 28 bytes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include <rdmabuf/rdmabuf.hpp>

#include "support/loopback.hpp"

namespace {

// Returns the first available allocator whose memory the CPU can map; GPU memory cannot be mapped.
// A real program would use its own buffers.
std::shared_ptr<rdmabuf::Allocator> choose_allocator(const rdmabuf::Resolver& resolver) {
    for (const auto& exporter : resolver.exporters()) {
        auto allocator = std::dynamic_pointer_cast<rdmabuf::Allocator>(exporter);
        if (allocator != nullptr && allocator->availability() && allocator->allocate(1).mapped()) {
            return allocator;
        }
    }
    throw std::runtime_error(
        "no exporter of this machine can allocate memory that the CPU can map");
}

} // namespace

int main() try {
    constexpr std::string_view text = "Hello from a dma-buf, straight into another.";
    constexpr std::size_t place = 4000; // offset in the target; the text crosses a page boundary

    const rdmabuf::Resolver resolver = rdmabuf::Resolver::system();
    const auto allocator = choose_allocator(resolver);
    const rdmabuf::Buffer source = allocator->allocate(65536);
    const rdmabuf::Buffer target = allocator->allocate(65536);

    // The CPU may access a dma-buf only while a CpuAccess object exists. The constructor and the
    // destructor of this object synchronise the caches.
    {
        const rdmabuf::CpuAccess guard = source.cpu_access(rdmabuf::CpuAccessMode::write);
        std::memcpy(guard.bytes().data(), text.data(), text.size());
    }
    {
        const rdmabuf::CpuAccess guard = target.cpu_access(rdmabuf::CpuAccessMode::write);
        std::ranges::fill(guard.bytes(), std::byte{'.'});
    }

    const rdmabuf::Context context = rdmabuf::Context::open_first();
    const rdmabuf::ProtectionDomain pd(context);
    // Only the region of the target permits remote writes. The region of the source has the default
    // access flags, which permit only local access.
    const rdmabuf::DmaBufMR from(pd, resolver.export_range(source.address(), source.size()));
    const rdmabuf::DmaBufMR to(
        pd, resolver.export_range(target.address(), target.size()),
        {.access = rdmabuf::Access::local_write | rdmabuf::Access::remote_write});

    // The target encodes its region for the writer. Two processes would exchange these bytes over a
    // connection of rdmabuf::bootstrap, for example.
    const auto wire = to.remote().encode();
    // The writer decodes the region of the target. decode() returns an error if the bytes are not
    // an encoded region.
    const rdmabuf::RemoteRegion remote = rdmabuf::RemoteRegion::decode(wire).value();

    const auto [here, there] = examples::connect_loopback(pd);
    here.post_write(from.sge(0, text.size()), remote.at(place)).throw_if_failed();
    here.wait();

    const rdmabuf::CpuAccess guard = target.cpu_access(rdmabuf::CpuAccessMode::read);
    const auto bytes = guard.bytes();
    const std::string_view arrived(reinterpret_cast<const char*>(bytes.data()) + place,
                                   text.size());
    std::printf("%s on %s: \"%.*s\"\n", std::string(allocator->name()).c_str(),
                context.device_name().c_str(), static_cast<int>(arrived.size()), arrived.data());
    const auto untouched = std::ranges::count(bytes, std::byte{'.'});
    const auto expected =
        static_cast<std::ptrdiff_t>(bytes.size() - text.size()) + std::ranges::count(text, '.');
    if (arrived != text || untouched != expected) {
        std::fprintf(stderr, "The bytes of the target differ from what was written.\n");
        return 1;
    }
    std::printf("%zu bytes written at offset %zu, and no other byte of %zu touched\n", text.size(),
                place, bytes.size());
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
