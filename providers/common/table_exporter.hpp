// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <rdmabuf/exporter.hpp>

#include "common/buffer_table.hpp"

namespace rdmabuf::detail {

/// Base class of exporters that find memory in a BufferTable only. The derived class adds the
/// buffers that it allocates, and the ranges that the program adds, to the table.
/// @tparam Interface  the public class that the exporter implements: Exporter, Allocator, or the
///                    class of the provider
template <class Interface>
class TableExporter : public Interface {
  public:
    [[nodiscard]] std::string_view name() const noexcept final { return name_; }

    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const final {
        return table_->find(address);
    }

    [[nodiscard]] std::optional<Allocation> find_overlapping(std::uintptr_t address,
                                                             std::size_t length) const final {
        return table_->find_overlapping(address, length);
    }

    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const final {
        return table_->export_range(name_, address, length, mapping);
    }

  protected:
    /// @param name  name of the exporter: a string literal, which is not copied
    explicit TableExporter(const char* name)
        : table_(std::make_shared<BufferTable>()), name_(name) {}

    /// The table is shared with buffers and added ranges, because they can outlive the exporter.
    const std::shared_ptr<BufferTable> table_;

  private:
    const char* name_;
};

} // namespace rdmabuf::detail
