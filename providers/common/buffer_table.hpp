// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "common/exported_memory.hpp"

namespace rdmabuf::detail {

/// Holds the live buffers of one exporter, sorted by address. Thread safe.
class BufferTable {
  public:
    /// Describes the dma-buf of a buffer, and the position of the buffer in the dma-buf.
    struct Place {
        /// The descriptor of the dma-buf. The pointer must stay valid until remove() is called.
        const UniqueFd* dmabuf = nullptr;
        /// If the driver permits only one import of a dma-buf: makes a new dma-buf for each export,
        /// from an address and a length in bytes. If null, `dmabuf` and `offset` are used.
        std::function<ExportedMemory(std::uintptr_t, std::size_t)> export_anew = nullptr;
        /// Offset of the buffer in the dma-buf, in bytes.
        std::uint64_t offset = 0;
        /// The owner of the memory. Each exported range keeps the owner alive. Null if the
        /// descriptor alone keeps the memory alive.
        std::shared_ptr<const void> keep = nullptr;
        /// The path (MappingKind) for which the dma-buf was exported.
        MappingKind mapping = MappingKind::standard;
    };

    /// Adds a buffer.
    /// @param allocation  if its generation (allocation number) is 0, the table assigns a
    ///                    generation that no other table of this process assigns
    /// @return the generation of the allocation
    /// @throws Error EEXIST if the buffer overlaps another buffer in the table; the error text
    ///         names both buffers
    std::uint64_t add(Allocation allocation, Place place);
    /// Adds a buffer that is one whole dma-buf: its offset in the dma-buf is 0.
    void add(Allocation allocation, const UniqueFd& dmabuf) {
        add(std::move(allocation), {.dmabuf = &dmabuf});
    }
    void remove(std::uintptr_t base) noexcept;

    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const;
    /// Implements Exporter::find_overlapping for the buffers of this table.
    [[nodiscard]] std::optional<Allocation> find_overlapping(std::uintptr_t address,
                                                             std::size_t length) const;

    /// Implements Exporter::export_range for the buffers of this table.
    /// @param exporter  name of the exporter
    [[nodiscard]] ExportedRange export_range(std::string_view exporter, std::uintptr_t address,
                                             std::size_t length) const;
    /// All dma-bufs of a buffer have the same mapping, Place::mapping. If @p mapping is
    /// MappingKind::standard, this overload exports the buffer whatever Place::mapping is.
    /// @throws Error ENOTSUP if @p mapping is MappingKind::pcie and Place::mapping is not
    [[nodiscard]] ExportedRange export_range(std::string_view exporter, std::uintptr_t address,
                                             std::size_t length, MappingKind mapping) const;

    [[nodiscard]] std::size_t size() const;

  private:
    struct Entry {
        Allocation allocation;
        Place place;
    };
    /// Returns the entry of the buffer that contains @p address, or null if no buffer contains @p
    /// address. The caller must hold mutex_.
    [[nodiscard]] const Entry* holder(std::uintptr_t address) const;

    mutable std::shared_mutex mutex_;
    std::map<std::uintptr_t, Entry> entries_;
};

/// The constructor adds an allocation to a BufferTable, and the destructor removes the allocation.
/// The object also owns the dma-buf of the allocation, unless it is constructed with a
/// BufferTable::Place.
class TableRange {
  public:
    /// @param offset  offset of the allocation in the dma-buf, in bytes
    /// @param keep    object that this TableRange and the ranges exported from it keep alive
    /// @param mapping the path (MappingKind) for which the dma-buf was exported
    /// @throws Error EEXIST if the allocation overlaps another allocation in the table
    TableRange(std::shared_ptr<BufferTable> table, Allocation allocation, UniqueFd dmabuf,
               std::uint64_t offset, std::shared_ptr<const void> keep = nullptr,
               MappingKind mapping = MappingKind::standard)
        : table_(std::move(table)), dmabuf_(std::move(dmabuf)), allocation_(std::move(allocation)) {
        allocation_.generation = table_->add(
            allocation_,
            {.dmabuf = &dmabuf_, .offset = offset, .keep = std::move(keep), .mapping = mapping});
    }
    /// Adds an allocation for which @p place has Place::export_anew. This object then owns no
    /// dma-buf.
    TableRange(std::shared_ptr<BufferTable> table, Allocation allocation, BufferTable::Place place)
        : table_(std::move(table)), allocation_(std::move(allocation)) {
        allocation_.generation = table_->add(allocation_, std::move(place));
    }
    TableRange(const TableRange&) = delete;
    TableRange& operator=(const TableRange&) = delete;
    ~TableRange() { table_->remove(allocation_.base); }

    [[nodiscard]] const Allocation& allocation() const noexcept { return allocation_; }

  private:
    std::shared_ptr<BufferTable> table_;
    UniqueFd dmabuf_;
    Allocation allocation_;
};

/// Creates a TableRange and returns it as an AddedRange: the memory stays in the table until the
/// program destroys the AddedRange.
/// @param place  the remaining constructor arguments of TableRange
template <class... Place>
[[nodiscard]] AddedRange add_range(std::shared_ptr<BufferTable> table, Allocation allocation,
                                   Place&&... place) {
    auto range = std::make_shared<const TableRange>(std::move(table), std::move(allocation),
                                                    std::forward<Place>(place)...);
    Allocation known = range->allocation();
    return {std::move(known), std::move(range)};
}

} // namespace rdmabuf::detail
