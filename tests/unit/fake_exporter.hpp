// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf::testing {

/// An exporter with one allocation, of any kind of memory, at an address of its own; a memfd stands
/// in for the dma-buf. It does what a test tells it, and counts what is asked of it.
class FakeExporter final : public Exporter {
  public:
    explicit FakeExporter(std::size_t size, std::uintptr_t base = std::uintptr_t{1} << 45U)
        : dmabuf_(make_dmabuf(size)), allocation{.base = base, .length = size, .generation = 1} {}

    [[nodiscard]] std::string_view name() const noexcept override { return exporter_name; }
    [[nodiscard]] Availability availability() const override { return Availability::yes(); }

    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        ++finds;
        if (on_find) {
            on_find();
        }
        callers.insert(std::this_thread::get_id());
        if (find_error != 0) {
            throw Error(find_error, "fakePointerGetAttribute", "the driver is in a bad way");
        }
        const bool inside = find_anywhere || (!freed && address >= allocation.base &&
                                              address - allocation.base < allocation.length);
        return inside ? std::optional(allocation) : std::nullopt;
    }

    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        exports.push_back(mapping);
        if (on_export) {
            on_export();
        }
        callers.insert(std::this_thread::get_id());
        const int error = mapping == MappingKind::pcie ? pcie_error : standard_error;
        if (error != 0) {
            throw Error(error, "fakeExport", "it does not map that way");
        }
        const std::size_t offset = address - allocation.base;
        if (length > allocation.length - offset) {
            throw Error(ERANGE, "fakeExport", "the range leaves the allocation");
        }
        const int fd = dmabuf_.duplicate().release();
        most_exported = std::max(most_exported, ++exported);
        return {std::string(exporter_name),
                fd,
                [this](int given_back) {
                    ++releases;
                    --exported;
                    callers.insert(std::this_thread::get_id());
                    static_cast<void>(UniqueFd(given_back));
                },
                offset + offset_by,
                length - short_by,
                address + address_by,
                pcie_falls_back ? MappingKind::standard : mapping};
    }

    /// What stands in for the dma-buf.
    [[nodiscard]] int fd() const noexcept { return dmabuf_.get(); }

  private:
    UniqueFd dmabuf_;

  public:
    Allocation allocation;
    std::string_view exporter_name = "fake";
    bool freed = false;
    /// find() returns the allocation also for addresses outside it.
    bool find_anywhere = false;
    /// Called at the begin of find() and export_range(); may throw.
    std::function<void()> on_find;
    std::function<void()> on_export;
    int find_error = 0;
    int standard_error = 0;
    int pcie_error = 0;
    std::size_t short_by = 0;
    /// The number of bytes that are added to the correct offset in the dma-buf.
    std::uint64_t offset_by = 0;
    /// The number of bytes that are added to the requested address.
    std::uintptr_t address_by = 0;
    /// There is one mapping only, which is exported for both requests.
    bool pcie_falls_back = false;

    mutable unsigned finds = 0;
    mutable unsigned releases = 0;
    mutable std::vector<MappingKind> exports;
    /// The number of descriptors that are exported now, and its maximum.
    mutable unsigned exported = 0;
    mutable unsigned most_exported = 0;
    /// The threads that called any of the functions.
    mutable std::set<std::thread::id> callers;
};

} // namespace rdmabuf::testing
