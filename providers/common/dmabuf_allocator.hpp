// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "common/mapping.hpp"

namespace rdmabuf::detail {

class BufferTable;

/// An allocator whose buffers are whole dma-bufs with a mapping for the CPU, known by the address
/// of that mapping. A provider adds how one is made, and whether it can be.
class DmaBufAllocator : public Allocator {
  public:
    [[nodiscard]] std::string_view name() const noexcept final { return name_; }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const final;
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const final;
    [[nodiscard]] Buffer allocate(std::size_t size) final;

  protected:
    struct NewBuffer {
        UniqueFd dmabuf;
        Mapping mapping;
        MemoryKind kind = MemoryKind::system;
        std::string pci_address = {};
        /// Whether DMA_BUF_IOCTL_SYNC brackets what the CPU does. What only stands in for a dma-buf
        /// does not know it.
        bool synced = true;
    };

    /// @param name  a string literal
    explicit DmaBufAllocator(const char* name);

    /// @param size  whole pages, not 0
    [[nodiscard]] virtual NewBuffer make(std::size_t size) const = 0;

  private:
    const char* name_;
    /// Buffers outlive their allocator, and hold this.
    std::shared_ptr<BufferTable> table_;
};

} // namespace rdmabuf::detail
