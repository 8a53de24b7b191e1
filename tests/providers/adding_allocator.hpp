// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <rdmabuf/exporter.hpp>

namespace rdmabuf::testing {

/// Lets an exporter that makes no memory have the shared suite: what another allocator makes is
/// added to it.
class AddingAllocator final : public Allocator {
  public:
    /// Adds a buffer, of which all is exported in the range, to the exporter under test.
    using Add = std::function<AddedRange(const Buffer&, const ExportedRange&)>;

    AddingAllocator(std::shared_ptr<Exporter> exporter, Add add, std::shared_ptr<Allocator> memory)
        : exporter_(std::move(exporter)), add_(std::move(add)), memory_(std::move(memory)) {}

    [[nodiscard]] std::string_view name() const noexcept override { return exporter_->name(); }
    [[nodiscard]] Availability availability() const override {
        Availability memory = memory_->availability();
        return memory ? exporter_->availability() : memory;
    }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        return exporter_->find(address);
    }
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        return exporter_->export_range(address, length, mapping);
    }
    [[nodiscard]] Buffer allocate(std::size_t size) override {
        Buffer buffer = memory_->allocate(size);
        ExportedRange all = memory_->export_range(buffer.address(), buffer.size());
        AddedRange added = add_(buffer, all);
        return Buffer(std::make_unique<Added>(std::move(buffer), std::move(all), std::move(added)));
    }

  private:
    class Added final : public Buffer::Memory {
      public:
        Added(Buffer buffer, ExportedRange all, AddedRange added)
            : buffer_(std::move(buffer)), all_(std::move(all)), added_(std::move(added)) {}
        [[nodiscard]] std::uintptr_t address() const noexcept override { return buffer_.address(); }
        [[nodiscard]] std::size_t size() const noexcept override { return buffer_.size(); }
        [[nodiscard]] std::span<std::byte> mapping() const noexcept override {
            return {reinterpret_cast<std::byte*>(address()), size()};
        }
        [[nodiscard]] int sync_fd() const noexcept override { return all_.fd(); }

      private:
        Buffer buffer_;
        ExportedRange all_;
        /// The first to go: from then on the address may be another buffer's.
        AddedRange added_;
    };

    std::shared_ptr<Exporter> exporter_;
    Add add_;
    std::shared_ptr<Allocator> memory_;
};

} // namespace rdmabuf::testing
