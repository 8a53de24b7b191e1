// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// A memory range that the program has added to an exporter. The exporter can find and export the
/// range until this object is destroyed. Objects can be moved but not copied. An object may outlive
/// the exporter.
///
/// Removing the range has no effect on earlier exports: an ExportedRange owns its own descriptor,
/// and a region holds a kernel reference to the dma-buf. The program remains the owner of the
/// memory. Remove the range before the memory is freed, so that a registration cache does not use
/// its old registration again.
class AddedRange {
  public:
    /// Exporters call this constructor.
    /// @param held  an object whose destructor removes the range from the exporter
    AddedRange(Allocation allocation, std::shared_ptr<const void> held) noexcept
        : allocation_(std::move(allocation)), held_(std::move(held)) {}
    AddedRange(AddedRange&&) noexcept = default;
    AddedRange& operator=(AddedRange&&) noexcept = default;
    AddedRange(const AddedRange&) = delete;
    AddedRange& operator=(const AddedRange&) = delete;
    ~AddedRange() = default;

    /// Returns the allocation of the range, as Exporter::find() reports it. Allocation::generation
    /// distinguishes successive allocations at the same address.
    [[nodiscard]] const Allocation& allocation() const noexcept { return allocation_; }
    [[nodiscard]] std::uintptr_t address() const noexcept { return allocation_.base; }
    /// Returns the length of the range in bytes.
    [[nodiscard]] std::size_t length() const noexcept { return allocation_.length; }

    /// Removes the range from the exporter. Does nothing if the range was already removed.
    void remove() noexcept { held_.reset(); }
    /// Returns true until the range is removed from the exporter by remove(). Returns false also
    /// after a move from this object.
    [[nodiscard]] bool added() const noexcept { return held_ != nullptr; }

  private:
    Allocation allocation_;
    std::shared_ptr<const void> held_;
};

} // namespace rdmabuf
