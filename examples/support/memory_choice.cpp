// SPDX-License-Identifier: BSD-3-Clause
#include "memory_choice.hpp"

#include <algorithm>

#include <rdmabuf/detail/config.hpp>
#if RDMABUF_HAVE_PROVIDER_DMA_HEAP
#include <rdmabuf/providers/dma_heap.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_DRM
#include <rdmabuf/providers/drm.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
#include <rdmabuf/providers/memfd.hpp>
#endif

namespace examples {

const char* to_string(MemoryType type) noexcept {
    return name_of<MemoryType>(type, memory_types);
}

// The exporter is named after the kernel's dma_heap, the option like the other options.
std::string exporter_name(MemoryType type) {
    std::string name = to_string(type);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

rdmabuf::Resolver make_resolver([[maybe_unused]] const MemoryChoice& choice) {
#if RDMABUF_HAVE_PROVIDER_DMA_HEAP
    if (choice.type == MemoryType::dma_heap) {
        return rdmabuf::Resolver({rdmabuf::make_dma_heap_exporter(choice.heap)});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_DRM
    if (choice.type == MemoryType::drm) {
        return rdmabuf::Resolver(
            {rdmabuf::make_drm_exporter({.path = choice.drm_node, .driver = choice.drm_driver})});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
    if (choice.type == MemoryType::memfd) {
        return rdmabuf::Resolver({rdmabuf::make_memfd_exporter()});
    }
#endif
    return rdmabuf::Resolver::system();
}

} // namespace examples
