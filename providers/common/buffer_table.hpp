// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include <rdmabuf/added_range.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// The live buffers of one exporter, by address. Thread safe.
class BufferTable {
  public:
    /// Where a buffer lies in a dma-buf.
    struct Place {
        /// Stays where it is until remove().
        const UniqueFd* dmabuf = nullptr;
        /// Where the buffer begins in the dma-buf, in bytes.
        std::uint64_t offset = 0;
        /// What exported ranges hold besides, for memory that a descriptor alone does not keep.
        std::shared_ptr<const void> keep = nullptr;
    };

    /// @param allocation  its generation is given here, unique in this process, unless it has one
    /// @return the generation
    /// @throws Error EEXIST when it overlaps another: the hint names both
    std::uint64_t add(Allocation allocation, Place place);
    /// A buffer that is one whole dma-buf: an offset into one is an offset into the other.
    void add(Allocation allocation, const UniqueFd& dmabuf) {
        add(std::move(allocation), {.dmabuf = &dmabuf});
    }
    void remove(std::uintptr_t base) noexcept;

    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const;

    /// Exporter::export_range, for these buffers. @param exporter its name
    [[nodiscard]] ExportedRange export_range(std::string_view exporter, std::uintptr_t address,
                                             std::size_t length) const;
    /// The same of memory that reaches importers in one way only. @throws Error ENOTSUP for others
    [[nodiscard]] ExportedRange export_range(std::string_view exporter, std::uintptr_t address,
                                             std::size_t length, MappingKind mapping) const;

    [[nodiscard]] std::size_t size() const;

  private:
    struct Entry {
        Allocation allocation;
        Place place;
    };
    /// Null when no buffer holds @p address. The caller holds the lock.
    [[nodiscard]] const Entry* holder(std::uintptr_t address) const;

    mutable std::shared_mutex mutex_;
    std::map<std::uintptr_t, Entry> entries_;
};

/// A range that is in a table for as long as it lives, with the dma-buf that holds it.
class TableRange {
  public:
    /// @param offset  where the range begins in the dma-buf
    /// @param keep    lives as long as the range and all that is exported of it
    /// @throws Error EEXIST when it overlaps another
    TableRange(std::shared_ptr<BufferTable> table, Allocation allocation, UniqueFd dmabuf,
               std::uint64_t offset, std::shared_ptr<const void> keep = nullptr)
        : table_(std::move(table)), dmabuf_(std::move(dmabuf)), allocation_(std::move(allocation)) {
        allocation_.generation = table_->add(
            allocation_, {.dmabuf = &dmabuf_, .offset = offset, .keep = std::move(keep)});
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

/// The same, for a program to hold.
[[nodiscard]] inline AddedRange add_range(std::shared_ptr<BufferTable> table, Allocation allocation,
                                          UniqueFd dmabuf, std::uint64_t offset,
                                          std::shared_ptr<const void> keep = nullptr) {
    auto range = std::make_shared<const TableRange>(std::move(table), std::move(allocation),
                                                    std::move(dmabuf), offset, std::move(keep));
    Allocation known = range->allocation();
    return {std::move(known), std::move(range)};
}

} // namespace rdmabuf::detail
