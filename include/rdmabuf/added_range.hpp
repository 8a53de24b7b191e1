// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// A range of memory that a program told an exporter of, and that the exporter knows for as long as
/// this lives. Moves only. May outlive the exporter.
///
/// Removing it takes nothing from what was exported before: an ExportedRange has a descriptor of
/// its own, and a region has the kernel's reference. It is the owner of the memory who decides when
/// that goes; remove the range before, so that a cache does not find it again.
class AddedRange {
  public:
    /// For exporters.
    /// @param held  makes the exporter forget the range when it goes
    AddedRange(Allocation allocation, std::shared_ptr<const void> held) noexcept
        : allocation_(std::move(allocation)), held_(std::move(held)) {}
    AddedRange(AddedRange&&) noexcept = default;
    AddedRange& operator=(AddedRange&&) noexcept = default;
    AddedRange(const AddedRange&) = delete;
    AddedRange& operator=(const AddedRange&) = delete;
    ~AddedRange() = default;

    /// What the exporter answers for it, its generation included.
    [[nodiscard]] const Allocation& allocation() const noexcept { return allocation_; }
    [[nodiscard]] std::uintptr_t address() const noexcept { return allocation_.base; }
    /// In bytes.
    [[nodiscard]] std::size_t length() const noexcept { return allocation_.length; }

    /// The exporter forgets it now. Nothing happens the second time.
    void remove() noexcept { held_.reset(); }
    /// Whether the exporter knows it: not after remove(), nor after it was moved from.
    [[nodiscard]] bool added() const noexcept { return held_ != nullptr; }

  private:
    Allocation allocation_;
    std::shared_ptr<const void> held_;
};

} // namespace rdmabuf
