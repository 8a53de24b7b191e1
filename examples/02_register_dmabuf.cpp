// SPDX-License-Identifier: BSD-3-Clause
//
// Registers memory that a driver exports as a dma-buf, for each exporter of this machine. The steps
// are the same for all exporters, including those of GPUs:
//
//   address, length -> Resolver -> ExportedRange -> DmaBufMR -> lkey, rkey, iova
#include <cstdio>

#include <rdmabuf/rdmabuf.hpp>

namespace {

constexpr std::size_t buffer_size = 1048576;
constexpr std::size_t place = 65536; // offset in the buffer
constexpr std::size_t length = 262144;

// Registers the middle of a buffer, and prints the keys and the iova of the region. Returns true if
// the region begins at the requested address and has the requested length.
bool register_from(const rdmabuf::Resolver& resolver, rdmabuf::Allocator& allocator,
                   const rdmabuf::ProtectionDomain& pd) {
    const rdmabuf::Buffer buffer = allocator.allocate(buffer_size);
    const std::uintptr_t address = buffer.address() + place;

    // The resolver finds the exporter to which the address belongs. The exporter returns a file
    // descriptor of the dma-buf, and the offset of the range in the dma-buf.
    const rdmabuf::ExportedRange range = resolver.export_range(address, length);
    // The access flags permit peers to write to the region. The kernel takes its own reference to
    // the dma-buf, so the program may destroy `range` after the registration.
    const rdmabuf::DmaBufMR region(
        pd, range, {.access = rdmabuf::Access::local_write | rdmabuf::Access::remote_write});

    std::printf("  %zu bytes at %#zx are bytes %zu.. of dma-buf fd %d\n", region.length(), address,
                static_cast<std::size_t>(region.offset()), range.fd());
    std::printf("  registered: lkey %#x, rkey %#x, iova %#zx, %s\n", region.lkey(), region.rkey(),
                static_cast<std::size_t>(region.iova()), to_string(region.access()).c_str());
    // By default the iova is the address of the memory, so peers use the pointer as remote address.
    return region.iova() == address && region.length() == length &&
           region.offset() == range.offset() && range.exporter() == allocator.name();
}

} // namespace

int main() try {
    const rdmabuf::Context context = rdmabuf::Context::open_first();
    const rdmabuf::ProtectionDomain pd(context);
    std::printf("%s, import of dma-bufs: %s\n", context.device_name().c_str(),
                to_string(context.dmabuf_import()).c_str());

    const rdmabuf::Resolver resolver = rdmabuf::Resolver::system();
    int registered = 0;
    for (const auto& exporter : resolver.exporters()) {
        const rdmabuf::Availability availability = exporter->availability();
        std::printf("%s: %s\n", std::string(exporter->name()).c_str(),
                    to_string(availability).c_str());
        auto* allocator = dynamic_cast<rdmabuf::Allocator*>(exporter.get());
        if (!availability || allocator == nullptr) {
            continue;
        }
        if (!register_from(resolver, *allocator, pd)) {
            std::fprintf(stderr, "The region differs from the requested one.\n");
            return 1;
        }
        ++registered;
    }
    std::printf("registered memory of %d exporters\n", registered);
    return registered > 0 ? 0 : 1;
} catch (const rdmabuf::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
