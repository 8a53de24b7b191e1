// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

#include <algorithm>
#include <memory>

#include <rdmabuf/detail/config.hpp>
#include <rdmabuf/resolver.hpp>
#if RDMABUF_HAVE_PROVIDER_CUDA
#include <rdmabuf/providers/cuda.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_DMA_HEAP
#include <rdmabuf/providers/dma_heap.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_DRM
#include <rdmabuf/providers/drm.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_EXTERNAL
#include <rdmabuf/providers/external.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_LEVEL_ZERO
#include <rdmabuf/providers/level_zero.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
#include <rdmabuf/providers/memfd.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_ROCM
#include <rdmabuf/providers/rocm.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_UDMABUF
#include <rdmabuf/providers/udmabuf.hpp>
#endif

namespace rdmabuf::tools {

namespace {

Resolver make_resolver(const MemoryOptions& options) {
#if RDMABUF_HAVE_PROVIDER_CUDA
    if (options.type == "cuda" && options.gpu) {
        return Resolver({make_cuda_exporter({.device = *options.gpu})});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_LEVEL_ZERO
    if (options.type == "level_zero" && options.gpu) {
        return Resolver({make_level_zero_exporter({.device = *options.gpu})});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_ROCM
    if (options.type == "rocm" && options.gpu) {
        return Resolver({make_rocm_exporter({.device = *options.gpu})});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_DMA_HEAP
    if (options.type == "dma_heap") {
        return Resolver({make_dma_heap_exporter(options.heap.value_or("system"))});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_DRM
    if (options.type == "drm") {
        return Resolver({make_drm_exporter(
            {.path = options.drm_node.value_or(""), .driver = options.drm_driver.value_or("")})});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
    if (options.type == "memfd") {
        return Resolver({make_memfd_exporter()});
    }
#endif
    return Resolver::system();
}

#if RDMABUF_HAVE_PROVIDER_EXTERNAL
/// Returns the allocator that allocates the memory for `--memory external`. In a real program,
/// another library would allocate this memory.
std::shared_ptr<Allocator> make_external_owner() {
#if RDMABUF_HAVE_PROVIDER_UDMABUF
    if (auto udmabuf = make_udmabuf_exporter(); udmabuf->availability()) {
        return udmabuf;
    }
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
    return make_memfd_exporter();
#else
    throw UsageError("--memory external requires /dev/udmabuf: use another --memory");
#endif
}
#endif

} // namespace

AllocatedMemory::AllocatedMemory(const MemoryOptions& options, std::size_t size) {
    if (options.type == "host") {
        host_.resize(size);
        address_ = reinterpret_cast<std::uintptr_t>(host_.data());
        return;
    }
    allocate(options, size);
    address_ = buffer_->address();
}

void AllocatedMemory::allocate(const MemoryOptions& options, std::size_t size) {
    if (options.type == "external") {
#if RDMABUF_HAVE_PROVIDER_EXTERNAL
        const auto owner = make_external_owner();
        buffer_ = owner->allocate(size);
        const ExportedRange dmabuf = owner->export_range(buffer_->address(), buffer_->size());
        const auto external = make_external_exporter();
        added_ = external->add(
            dmabuf.fd(),
            {.address = buffer_->address(), .length = buffer_->size(), .kind = MemoryKind::system});
        detail_ = "memory of " + std::string(owner->name());
        resolver_ = Resolver({external});
        return;
#endif
    }
    resolver_ = make_resolver(options);
    if (std::ranges::none_of(resolver_.exporters(), [&](const std::shared_ptr<Exporter>& each) {
            return each->name() == options.type;
        })) {
        throw UsageError("this rdmabuf was built without the " + options.type +
                         " exporter: use another --memory");
    }
    const auto allocator = resolver_.allocator(options.type);
    buffer_ = allocator->allocate(size);
    detail_ = allocator->availability().reason;
}

void AllocatedMemory::access(CpuAccessMode mode, std::size_t offset, std::size_t length,
                             const Use& use) {
    if (!buffer_) {
        use(std::span(host_).subspan(offset, length));
        return;
    }
    if (buffer_->mapped()) {
        const CpuAccess guard = buffer_->cpu_access(mode);
        use(guard.bytes().subspan(offset, length));
        return;
    }
    std::vector<std::byte> copy(length);
    buffer_->copy_out(offset, copy);
    use(copy);
    if (mode != CpuAccessMode::read) {
        buffer_->copy_in(offset, copy);
    }
}

TestMemory::TestMemory(const ProtectionDomain& pd, const MemoryOptions& options,
                       const BufferLayout& layout, const RegistrationOptions& registration) {
    if (options.type == "dm") {
        device_.emplace(pd.context(), layout.size, DeviceMemoryOptions{.log2_alignment = 3});
        device_region_.emplace(pd, *device_,
                               DeviceMemoryMROptions{

                                   .access = registration.access,
                                   .offset = layout.region_offset,
                                   .length = layout.region_length});
        lkey_ = device_region_->lkey();
        remote_ = device_region_->remote();
        origin_.path = "dm";
        return;
    }
    allocated_.emplace(options, layout.size);
    registration_ =
        register_memory(pd, allocated_->resolver(), allocated_->address() + layout.region_offset,
                        layout.region_length, registration);
    lkey_ = registration_->lkey();
    remote_ = registration_->remote();
    origin_.path = to_string(registration_->path());
    origin_.exporter = registration_->exporter();
    origin_.detail = allocated_->detail();
}

void TestMemory::access(CpuAccessMode mode, std::size_t offset, std::size_t length,
                        const Use& use) {
    if (allocated_) {
        allocated_->access(mode, offset, length, use);
        return;
    }
    std::vector<std::byte> copy(length);
    device_->copy_out(offset, copy);
    use(copy);
    if (mode != CpuAccessMode::read) {
        device_->copy_in(offset, copy);
    }
}

} // namespace rdmabuf::tools
