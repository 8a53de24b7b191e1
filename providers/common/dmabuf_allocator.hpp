// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "common/mapping.hpp"
#include "common/table_exporter.hpp"

namespace rdmabuf::detail {

/// Base class of exporters whose buffers are whole dma-bufs that the CPU can access. The address of
/// a buffer is the address of its CPU mapping. A provider implements make() and availability().
class DmaBufAllocator : public TableExporter<Allocator> {
  public:
    [[nodiscard]] Buffer allocate(std::size_t size) final;

  protected:
    struct NewBuffer {
        UniqueFd dmabuf;
        Mapping mapping;
        MemoryKind kind = MemoryKind::system;
        std::string pci_address = {};
        /// True if each CPU access must begin and end with DMA_BUF_IOCTL_SYNC. False for a memfd,
        /// which does not support this ioctl.
        bool synced = true;
    };

    /// @param name  name of the exporter: a string literal, which is not copied
    explicit DmaBufAllocator(const char* name);

    /// Allocates the memory of a buffer.
    /// @param size  in bytes; a multiple of the page size, not 0
    [[nodiscard]] virtual NewBuffer make(std::size_t size) const = 0;
};

} // namespace rdmabuf::detail
