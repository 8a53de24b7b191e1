// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include <string>
#include <utility>

#include <rdmabuf/providers/memfd.hpp>

#include "common/dmabuf_allocator.hpp"
#include "common/mapping.hpp"

namespace rdmabuf {
namespace {

class MemfdExporter final : public detail::DmaBufAllocator {
  public:
    MemfdExporter() : DmaBufAllocator("memfd") {}

    [[nodiscard]] Availability availability() const override {
        const auto made = detail::open_memfd();
        if (!made) {
            return made.error_info().availability();
        }
        return Availability::yes("a substitute for dma-bufs that only devices of softverbs accept");
    }

  protected:
    [[nodiscard]] NewBuffer make(std::size_t size) const override {
        // The seals make the memfd behave like a dma-buf, whose size never changes. F_SEAL_SEAL
        // prevents later seals, such as F_SEAL_WRITE.
        UniqueFd memfd = detail::make_memfd(size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        detail::Mapping mapping(memfd.get(), size);
        return {.dmabuf = std::move(memfd), .mapping = std::move(mapping), .synced = false};
    }
};

} // namespace

std::shared_ptr<Allocator> make_memfd_exporter() {
    return std::make_shared<MemfdExporter>();
}

} // namespace rdmabuf
