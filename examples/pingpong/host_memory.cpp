// SPDX-License-Identifier: BSD-3-Clause
#include <vector>

#include <rdmabuf/memory_region.hpp>

#include "memory.hpp"

namespace pingpong {

namespace {

class HostMemory final : public Memory {
  public:
    HostMemory(const rdmabuf::ProtectionDomain& pd, const Layout& layout, Verb verb)
        : Memory({.path = "host", .exporter = {}, .detail = {}}),
          buffer_(layout.total),
          region_(pd, buffer_.data() + layout.region_offset, layout.region_length,
                  {.access = access_for(verb)}) {}

    [[nodiscard]] const rdmabuf::Region& region() const noexcept override { return region_; }
    void access(rdmabuf::CpuAccessMode /*mode*/, const Use& use) override { use(buffer_); }

  private:
    std::vector<std::byte> buffer_;
    rdmabuf::MemoryRegion region_;
};

} // namespace

std::unique_ptr<Memory> make_host_memory(const rdmabuf::ProtectionDomain& pd, const Layout& layout,
                                         Verb verb) {
    return std::make_unique<HostMemory>(pd, layout, verb);
}

} // namespace pingpong
