// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include <rdmabuf/exporter.hpp>

#include "common/buffer_table.hpp"

namespace rdmabuf::detail {

/// A buffer that only its driver copies, in a table for as long as it lives. What is exported of it
/// keeps the memory.
/// @tparam DriverMemory  has address(), size(), copy_in() and copy_out(), as Buffer::Memory does
template <class DriverMemory>
class DriverBuffer final : public Buffer::Memory {
  public:
    /// @param dmabuf  holds the memory from @p offset on
    DriverBuffer(std::shared_ptr<BufferTable> table, std::shared_ptr<DriverMemory> memory,
                 UniqueFd dmabuf, std::uint64_t offset, std::string pci_address)
        : memory_(std::move(memory)),
          range_(std::move(table),
                 {.base = memory_->address(),
                  .length = memory_->size(),
                  .generation = 0,
                  .kind = MemoryKind::device,
                  .pci_address = std::move(pci_address)},
                 std::move(dmabuf), offset, memory_) {}

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
