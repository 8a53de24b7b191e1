// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <string_view>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// The live buffers of one allocator, by address. Thread safe. Every buffer is one whole dma-buf,
/// so an offset into the allocation is an offset into the dma-buf.
class BufferTable {
  public:
    /// @param allocation  its generation is given here, unique in this process
    /// @param dmabuf      stays where it is until remove()
    void add(Allocation allocation, const UniqueFd& dmabuf);
    void remove(std::uintptr_t base) noexcept;

    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const;

    /// Exporter::export_range, for these buffers. @param exporter its name
    [[nodiscard]] ExportedRange export_range(std::string_view exporter, std::uintptr_t address,
                                             std::size_t length) const;

  private:
    struct Entry {
        Allocation allocation;
        const UniqueFd* dmabuf = nullptr;
    };
    /// Null when no buffer holds @p address. The caller holds the lock.
    [[nodiscard]] const Entry* holder(std::uintptr_t address) const;

    mutable std::shared_mutex mutex_;
    std::map<std::uintptr_t, Entry> entries_;
};

} // namespace rdmabuf::detail
