// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <vector>

#include <rdmabuf/detail/config.hpp>
#include <rdmabuf/dmabuf_mr.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/resolver.hpp>

#include "memory.hpp"
#if RDMABUF_HAVE_PROVIDER_DMA_HEAP
#include <rdmabuf/providers/dma_heap.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_DRM
#include <rdmabuf/providers/drm.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
#include <rdmabuf/providers/memfd.hpp>
#endif

namespace pingpong {

namespace {

// The exporter is named after the kernel's dma_heap, the option like the other options.
std::string exporter_name(MemoryType type) {
    std::string name = to_string(type);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

// All exporters of this machine, except where the command line wants one in particular.
rdmabuf::Resolver make_resolver([[maybe_unused]] const Options& options) {
#if RDMABUF_HAVE_PROVIDER_DMA_HEAP
    if (options.memory == MemoryType::dma_heap) {
        return rdmabuf::Resolver({rdmabuf::make_dma_heap_exporter(options.heap)});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_DRM
    if (options.memory == MemoryType::drm) {
        return rdmabuf::Resolver(
            {rdmabuf::make_drm_exporter({.path = options.drm_node, .driver = options.drm_driver})});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
    if (options.memory == MemoryType::memfd) {
        // The system's do not have this stand-in among them.
        return rdmabuf::Resolver({rdmabuf::make_memfd_exporter()});
    }
#endif
    return rdmabuf::Resolver::system();
}

class DmaBufMemory final : public Memory {
  public:
    // The ExportedRange may go once the region is made: the kernel has its own reference.
    DmaBufMemory(rdmabuf::Buffer buffer, std::size_t size, const rdmabuf::ProtectionDomain& pd,
                 const rdmabuf::ExportedRange& range, Verb verb, std::string detail)
        : Memory({.path = "dmabuf", .exporter = range.exporter(), .detail = std::move(detail)}),
          buffer_(std::move(buffer)),
          size_(size),
          copy_(buffer_.mapped() ? 0 : size),
          region_(pd, range, {.access = access_for(verb)}) {}

    [[nodiscard]] const rdmabuf::Region& region() const noexcept override { return region_; }
    void access(rdmabuf::CpuAccessMode mode, const Use& use) override {
        // A GPU's has no mapping.
        if (!buffer_.mapped()) {
            access_copy(buffer_, copy_, mode, use);
            return;
        }
        const rdmabuf::CpuAccess guard = buffer_.cpu_access(mode);
        use(guard.bytes().first(size_));
    }

  private:
    rdmabuf::Buffer buffer_;
    std::size_t size_;
    std::vector<std::byte> copy_;
    rdmabuf::DmaBufMR region_;
};

} // namespace

std::unique_ptr<Memory> make_dmabuf_memory(const rdmabuf::ProtectionDomain& pd,
                                           const Layout& layout, const Options& options) {
    const rdmabuf::Resolver resolver = make_resolver(options);
    const auto allocator = resolver.allocator(exporter_name(options.memory));
    rdmabuf::Buffer buffer = allocator->allocate(layout.total);
    // From here on by address alone, as for memory that somebody else allocated.
    const rdmabuf::ExportedRange range =
        resolver.export_range(buffer.address() + layout.region_offset, layout.region_length);
    return std::make_unique<DmaBufMemory>(std::move(buffer), layout.total, pd, range, options.verb,
                                          allocator->availability().reason);
}

} // namespace pingpong
