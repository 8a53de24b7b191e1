// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <rdmabuf/detail/config.hpp>
#include <rdmabuf/dmabuf_mr.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/resolver.hpp>

#include "memory.hpp"
#if RDMABUF_HAVE_PROVIDER_EXTERNAL
#include <rdmabuf/providers/external.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
#include <rdmabuf/providers/memfd.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_UDMABUF
#include <rdmabuf/providers/udmabuf.hpp>
#endif

namespace pingpong {

#if RDMABUF_HAVE_PROVIDER_EXTERNAL

namespace {

// Stands for a library that rdmabuf knows nothing of, and that hands out descriptors.
std::shared_ptr<rdmabuf::Allocator> make_owner() {
#if RDMABUF_HAVE_PROVIDER_UDMABUF
    if (auto udmabuf = rdmabuf::make_udmabuf_exporter(); udmabuf->availability()) {
        return udmabuf;
    }
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
    return rdmabuf::make_memfd_exporter();
#else
    throw UsageError("--memory external needs /dev/udmabuf here: use another --memory");
#endif
}

class ExternalMemory final : public Memory {
  public:
    ExternalMemory(const std::shared_ptr<rdmabuf::ExternalExporter>& external, std::string owner,
                   rdmabuf::Buffer buffer, int fd, const rdmabuf::ProtectionDomain& pd,
                   const Layout& layout, Verb verb)
        : Memory({.path = "dmabuf",
                  .exporter = std::string(external->name()),
                  .detail = "memory of " + std::move(owner)}),
          buffer_(std::move(buffer)),
          size_(layout.total),
          range_(external->add(fd, {.address = buffer_.address(),
                                    .length = buffer_.size(),
                                    .kind = rdmabuf::MemoryKind::system})),
          region_(pd,
                  rdmabuf::Resolver({external})
                      .export_range(range_.address() + layout.region_offset, layout.region_length),
                  {.access = access_for(verb)}) {}

    [[nodiscard]] const rdmabuf::Region& region() const noexcept override { return region_; }
    void access(rdmabuf::CpuAccessMode mode, const Use& use) override {
        const rdmabuf::CpuAccess guard = buffer_.cpu_access(mode);
        use(guard.bytes().first(size_));
    }

  private:
    rdmabuf::Buffer buffer_;
    std::size_t size_;
    rdmabuf::AddedRange range_;
    rdmabuf::DmaBufMR region_;
};

} // namespace

std::unique_ptr<Memory> make_external_memory(const rdmabuf::ProtectionDomain& pd,
                                             const Layout& layout, const Options& options) {
    const auto owner = make_owner();
    rdmabuf::Buffer buffer = owner->allocate(layout.total);
    // All that is handed over: the address above, and a descriptor.
    const rdmabuf::ExportedRange dmabuf = owner->export_range(buffer.address(), buffer.size());
    return std::make_unique<ExternalMemory>(rdmabuf::make_external_exporter(),
                                            std::string(owner->name()), std::move(buffer),
                                            dmabuf.fd(), pd, layout, options.verb);
}

#else

std::unique_ptr<Memory> make_external_memory(const rdmabuf::ProtectionDomain& /*pd*/,
                                             const Layout& /*layout*/, const Options& /*options*/) {
    throw UsageError("this rdmabuf was built without the external exporter: use another --memory");
}

#endif

} // namespace pingpong
