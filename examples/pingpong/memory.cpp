// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

namespace pingpong {

std::unique_ptr<Memory> make_memory(const rdmabuf::ProtectionDomain& pd, const Layout& layout,
                                    const Options& options) {
    switch (options.memory) {
        case MemoryType::host:
            return make_host_memory(pd, layout, options.verb);
        case MemoryType::dm:
            return make_device_memory(pd, layout, options);
        case MemoryType::external:
            return make_external_memory(pd, layout, options);
        case MemoryType::udmabuf:
        case MemoryType::dma_heap:
        case MemoryType::drm:
        case MemoryType::memfd:
            break;
    }
    return make_dmabuf_memory(pd, layout, options);
}

} // namespace pingpong
