// SPDX-License-Identifier: BSD-3-Clause
#include <vector>

#include <rdmabuf/device_memory.hpp>

#include "memory.hpp"

namespace pingpong {

namespace {

class DeviceMemoryOfNic final : public Memory {
  public:
    DeviceMemoryOfNic(const rdmabuf::ProtectionDomain& pd, const Layout& layout, Verb verb)
        : Memory({.path = "dm", .exporter = {}, .detail = {}}),
          memory_(pd.context(), layout.total, {.log2_alignment = 3}),
          region_(pd, memory_,
                  {.access = access_for(verb),
                   .offset = layout.region_offset,
                   .length = layout.region_length}),
          copy_(layout.total) {}

    [[nodiscard]] const rdmabuf::Region& region() const noexcept override { return region_; }

    void access(rdmabuf::CpuAccessMode mode, const Use& use) override {
        access_copy(memory_, copy_, mode, use);
    }

  private:
    rdmabuf::DeviceMemory memory_;
    rdmabuf::DeviceMemoryMR region_;
    std::vector<std::byte> copy_;
};

// Known before anything is allocated, so that the numbers can be told.
void check_capacity(const rdmabuf::Context& context, const Layout& layout, const Options& options) {
    const std::uint64_t ends = options.mode == Mode::loopback ? 2 : 1;
    const std::uint64_t needed = ends * layout.total;
    const std::uint64_t capacity = context.attributes().max_dm_size();
    if (needed <= capacity) {
        return;
    }
    const std::string device = context.device_name();
    if (capacity == 0) {
        throw UsageError(device +
                         " has no device memory (max_dm_size is 0): use another --memory, or "
                         "another --device");
    }
    throw UsageError("--size " + std::to_string(options.size) + " with guards takes " +
                     std::to_string(needed) + " bytes of device memory" +
                     (ends == 2 ? " for both ends" : "") + ", and " + device + " has " +
                     std::to_string(capacity) + " (max_dm_size): use a smaller --size");
}

} // namespace

std::unique_ptr<Memory> make_device_memory(const rdmabuf::ProtectionDomain& pd,
                                           const Layout& layout, const Options& options) {
    check_capacity(pd.context(), layout, options);
    return std::make_unique<DeviceMemoryOfNic>(pd, layout, options.verb);
}

} // namespace pingpong
