// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <rdmabuf/exporter.hpp>

namespace rdmabuf::testing {

/// Lets memory that the CPU has no mapping of have the shared suite, which looks at memory through
/// one: its own, of the exported descriptor. Copies still go the buffer's way.
class MappedAllocator final : public Allocator {
  public:
    explicit MappedAllocator(std::shared_ptr<Allocator> memory) : memory_(std::move(memory)) {}

    [[nodiscard]] std::string_view name() const noexcept override { return memory_->name(); }
    [[nodiscard]] Availability availability() const override { return memory_->availability(); }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        return memory_->find(address);
    }
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        return memory_->export_range(address, length, mapping);
    }
    [[nodiscard]] Buffer allocate(std::size_t size) override {
        Buffer buffer = memory_->allocate(size);
        const ExportedRange all = memory_->export_range(buffer.address(), buffer.size());
        return Buffer(std::make_unique<Mapped>(std::move(buffer), all.fd()));
    }

  private:
    class Mapped final : public Buffer::Memory {
      public:
        Mapped(Buffer buffer, int fd)
            : buffer_(std::move(buffer)),
              start_(::mmap(nullptr, buffer_.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {
            if (start_ == MAP_FAILED) {
                throw std::system_error(errno, std::system_category(), "mmap of what is exported");
            }
        }
        Mapped(const Mapped&) = delete;
        Mapped& operator=(const Mapped&) = delete;
        ~Mapped() override { ::munmap(start_, buffer_.size()); }
        [[nodiscard]] std::uintptr_t address() const noexcept override { return buffer_.address(); }
        [[nodiscard]] std::size_t size() const noexcept override { return buffer_.size(); }
        [[nodiscard]] std::span<std::byte> mapping() const noexcept override {
            return {static_cast<std::byte*>(start_), size()};
        }
        [[nodiscard]] int sync_fd() const noexcept override { return -1; }
        void copy_in(std::size_t offset, std::span<const std::byte> source) override {
            buffer_.copy_in(offset, source);
        }
        void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
            buffer_.copy_out(offset, destination);
        }

      private:
        Buffer buffer_;
        void* start_;
    };

    std::shared_ptr<Allocator> memory_;
};

} // namespace rdmabuf::testing
