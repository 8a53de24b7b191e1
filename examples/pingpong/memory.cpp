// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

namespace pingpong {

std::unique_ptr<Memory> make_memory(const rdmabuf::ProtectionDomain& pd, const Layout& layout,
                                    const Options& options) {
    if (options.memory.type == MemoryType::host) {
        return make_host_memory(pd, layout, options.verb);
    }
    if (options.memory.type == MemoryType::dm) {
        return make_device_memory(pd, layout, options);
    }
    if (options.memory.type == MemoryType::external) {
        return make_external_memory(pd, layout, options);
    }
    return make_dmabuf_memory(pd, layout, options);
}

} // namespace pingpong
