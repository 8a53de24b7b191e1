// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/providers/vfio.hpp>

namespace rdmabuf::testing {

/// Lets the vfio exporter, which makes no memory, have the shared suite: hands out pages of a BAR,
/// one after the other, mapped and added as a program does it that drives a device.
class BarAllocator final : public Allocator {
  public:
    BarAllocator(std::shared_ptr<VfioExporter> exporter, std::string path, std::uint32_t bar)
        : exporter_(std::move(exporter)), path_(std::move(path)), bar_(bar) {}

    [[nodiscard]] std::string_view name() const noexcept override { return exporter_->name(); }
    [[nodiscard]] Availability availability() const override { return exporter_->availability(); }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        return exporter_->find(address);
    }
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        return exporter_->export_range(address, length, mapping);
    }
    [[nodiscard]] Buffer allocate(std::size_t size) override;

  private:
    std::shared_ptr<VfioExporter> exporter_;
    std::string path_;
    std::uint32_t bar_;
    std::atomic<std::uint64_t> next_{0};
};

} // namespace rdmabuf::testing
