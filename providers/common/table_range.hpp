// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <rdmabuf/added_range.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "common/buffer_table.hpp"

namespace rdmabuf::detail {

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
