// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <span>
#include <utility>

#include <rdmabuf/exporter.hpp>

#include "common/buffer_table.hpp"

namespace rdmabuf::detail {

/// Implements a buffer that the CPU cannot map: the driver copies data to and from the buffer. The
/// buffer is in the BufferTable of its exporter while this object exists. Exported ranges keep the
/// memory of the buffer alive.
/// @tparam DriverMemory  a class with the functions address(), size(), copy_in() and copy_out() of
///                       Buffer::Memory
template <class DriverMemory>
class DriverBuffer final : public Buffer::Memory {
  public:
    /// Adds the buffer to the BufferTable.
    /// @param place  the other arguments of a constructor of TableRange
    template <class... Place>
    DriverBuffer(std::shared_ptr<BufferTable> table, std::shared_ptr<DriverMemory> memory,
                 Allocation allocation, Place&&... place)
        : memory_(std::move(memory)),
          range_(std::move(table), std::move(allocation), std::forward<Place>(place)...) {}

    [[nodiscard]] std::uintptr_t address() const noexcept override { return memory_->address(); }
    [[nodiscard]] std::size_t size() const noexcept override { return memory_->size(); }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return {}; }
    [[nodiscard]] int sync_fd() const noexcept override { return -1; }
    void copy_in(std::size_t offset, std::span<const std::byte> source) override {
        memory_->copy_in(offset, source);
    }
    void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
        memory_->copy_out(offset, destination);
    }

  private:
    std::shared_ptr<DriverMemory> memory_;
    TableRange range_;
};

} // namespace rdmabuf::detail
