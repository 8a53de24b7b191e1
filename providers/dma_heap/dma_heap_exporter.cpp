// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <linux/dma-heap.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/dma_heap.hpp>

#include "base/file_descriptor.hpp"
#include "common/device_node.hpp"
#include "common/dmabuf_allocator.hpp"

namespace rdmabuf {
namespace {

constexpr const char* folder = "/dev/dma_heap";
constexpr const char* no_heaps_remedy =
    "use a kernel with CONFIG_DMABUF_HEAPS and CONFIG_DMABUF_HEAPS_SYSTEM; a container needs the "
    "devices of /dev/dma_heap passed in";

ErrorInfo no_such_heap(const std::string& heap, const std::vector<std::string>& heaps) {
    const std::string reason = "there is no dma-buf heap '" + heap + "'";
    if (heaps.empty()) {
        return {ENOENT, "open", reason + ", and no other under " + folder, no_heaps_remedy};
    }
    std::string list;
    for (const std::string& name : heaps) {
        list.append(list.empty() ? "" : ", ").append(name);
    }
    return {ENOENT, "open", reason, "the existing heaps are: " + list};
}

Result<UniqueFd> open_heap(const std::string& heap) {
    auto listed = detail::list_folder(folder);
    if (!listed) {
        return listed.error_info();
    }
    // Only a name in the list of heaps is accepted, because a name such as "../null" would select a
    // file outside /dev/dma_heap.
    const auto& heaps = *listed;
    if (std::find(heaps.begin(), heaps.end(), heap) == heaps.end()) {
        return no_such_heap(heap, heaps);
    }
    return detail::open_device(
        std::string(folder) + "/" + heap,
        {.missing = no_heaps_remedy,
         .forbidden = "give the user permission to the heap's device, or run as root"});
}

class DmaHeapExporter final : public detail::DmaBufAllocator {
  public:
    explicit DmaHeapExporter(std::string heap)
        : DmaBufAllocator("dma_heap"), heap_(std::move(heap)) {}

    [[nodiscard]] Availability availability() const override {
        const auto device = open_heap(heap_);
        if (!device) {
            return device.error_info().availability();
        }
        return Availability::yes(std::string(folder) + "/" + heap_);
    }

  protected:
    [[nodiscard]] NewBuffer make(std::size_t size) const override {
        const UniqueFd device = open_heap(heap_).value();
        dma_heap_allocation_data request{};
        request.len = size;
        request.fd_flags = O_RDWR | O_CLOEXEC;
        if (detail::ioctl_retrying(device.get(), DMA_HEAP_IOCTL_ALLOC, &request) < 0) {
            throw Error(
                errno, "ioctl(DMA_HEAP_IOCTL_ALLOC)",
                std::to_string(size) + " bytes were requested from the heap '" + heap_ + "'");
        }
        UniqueFd dmabuf(static_cast<int>(request.fd));
        detail::Mapping mapping(dmabuf.get(), size);
        return {.dmabuf = std::move(dmabuf), .mapping = std::move(mapping)};
    }

  private:
    std::string heap_;
};

} // namespace

std::vector<std::string> list_dma_heaps() {
    return detail::list_folder(folder).value();
}

std::shared_ptr<Allocator> make_dma_heap_exporter(std::string heap) {
    return std::make_shared<DmaHeapExporter>(std::move(heap));
}

} // namespace rdmabuf
