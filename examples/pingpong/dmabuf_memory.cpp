// SPDX-License-Identifier: BSD-3-Clause
#include <vector>

#include <rdmabuf/dmabuf_mr.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/resolver.hpp>

#include "memory.hpp"
#include "support/memory_choice.hpp"

namespace pingpong {

namespace {

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
    const rdmabuf::Resolver resolver = examples::make_resolver(options.memory);
    const auto allocator = resolver.allocator(examples::exporter_name(options.memory.type));
    rdmabuf::Buffer buffer = allocator->allocate(layout.total);
    // From here on by address alone, as for memory that somebody else allocated.
    const rdmabuf::ExportedRange range =
        resolver.export_range(buffer.address() + layout.region_offset, layout.region_length);
    return std::make_unique<DmaBufMemory>(std::move(buffer), layout.total, pd, range, options.verb,
                                          allocator->availability().reason);
}

} // namespace pingpong
