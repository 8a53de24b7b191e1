// SPDX-License-Identifier: BSD-3-Clause
#include "common/buffer_table.hpp"

#include <atomic>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>

#include "base/text.hpp"
#include "common/exported_memory.hpp"

namespace rdmabuf::detail {
namespace {

/// Returns a generation: a number that identifies one allocation. All tables of this process share
/// the counter, so that no number is assigned twice.
std::uint64_t next_generation() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

std::string describe(const Allocation& allocation) {
    return "the " + std::to_string(allocation.length) + " bytes at " + hexadecimal(allocation.base);
}

ExportedRange hold(std::string name, UniqueFd fd, std::shared_ptr<const void> keep,
                   std::uint64_t offset, std::size_t length, std::uintptr_t address,
                   MappingKind mapping) {
    if (keep == nullptr) {
        return {std::move(name), std::move(fd), offset, length, address, mapping};
    }
    // The lambda closes the descriptor. The memory, which `keep` owns, is released afterwards, when
    // the lambda is destroyed.
    ExportedRange::Release release = [keep = std::move(keep)](int held) { UniqueFd(held).reset(); };
    return {std::move(name), fd.release(), std::move(release), offset, length, address, mapping};
}

} // namespace

std::uint64_t BufferTable::add(Allocation allocation, Place place) {
    if (allocation.generation == 0) {
        allocation.generation = next_generation();
    }
    const std::uint64_t generation = allocation.generation;
    const std::uintptr_t base = allocation.base;
    const std::unique_lock lock(mutex_);
    // The allocations in the table do not overlap. Only the last allocation that begins at or
    // before `base` can therefore contain `base`.
    const auto after = entries_.lower_bound(base);
    const bool next_begins_inside =
        after != entries_.end() && after->first - base < allocation.length;
    const Entry* const before = holder(base);
    if (next_begins_inside || before != nullptr) {
        const Allocation& other =
            next_begins_inside ? after->second.allocation : before->allocation;
        throw Error(EEXIST, "add",
                    describe(allocation) + " overlap " + describe(other) +
                        ", which are in this exporter already; remove them first");
    }
    entries_.emplace(base, Entry{std::move(allocation), std::move(place)});
    return generation;
}

void BufferTable::remove(std::uintptr_t base) noexcept {
    // `gone` is declared before the lock, so that the removed entry is destroyed after the lock is
    // released. The destruction may free the memory.
    decltype(entries_)::node_type gone;
    const std::unique_lock lock(mutex_);
    gone = entries_.extract(base);
}

const BufferTable::Entry* BufferTable::holder(std::uintptr_t address) const {
    const auto after = entries_.upper_bound(address);
    if (after == entries_.begin()) {
        return nullptr;
    }
    const Entry& entry = std::prev(after)->second;
    return address - entry.allocation.base < entry.allocation.length ? &entry : nullptr;
}

std::optional<Allocation> BufferTable::find(std::uintptr_t address) const {
    const std::shared_lock lock(mutex_);
    const Entry* const entry = holder(address);
    return entry != nullptr ? std::optional(entry->allocation) : std::nullopt;
}

std::optional<Allocation> BufferTable::find_overlapping(std::uintptr_t address,
                                                        std::size_t length) const {
    const std::shared_lock lock(mutex_);
    if (length == 0) {
        return std::nullopt;
    }
    if (const Entry* const entry = holder(address); entry != nullptr) {
        return entry->allocation;
    }
    const auto next = entries_.upper_bound(address);
    return next != entries_.end() && next->first - address < length
               ? std::optional(next->second.allocation)
               : std::nullopt;
}

ExportedRange BufferTable::export_range(std::string_view exporter, std::uintptr_t address,
                                        std::size_t length) const {
    constexpr const char* function = "export_range";
    check_exported(length);
    // The lock is held until the descriptor is duplicated or made. Without the lock, another thread
    // could free the buffer and close the descriptor.
    const std::shared_lock lock(mutex_);
    const Entry* const entry = holder(address);
    if (entry == nullptr) {
        throw Error(EFAULT, function,
                    hexadecimal(address) + " is not in any live buffer of this " +
                        std::string(exporter) + " exporter");
    }
    const Extent extent{.base = entry->allocation.base, .length = entry->allocation.length};
    if (!extent.holds(address, length)) {
        throw leaves(extent, address, length);
    }
    const Place& place = entry->place;
    ExportedMemory exported =
        place.export_anew ? place.export_anew(address, length)
                          : ExportedMemory{.fd = place.dmabuf->duplicate(),
                                           .offset = place.offset + (address - extent.base)};
    return hold(std::string(exporter), std::move(exported.fd), place.keep, exported.offset, length,
                address, place.mapping);
}

ExportedRange BufferTable::export_range(std::string_view exporter, std::uintptr_t address,
                                        std::size_t length, MappingKind mapping) const {
    ExportedRange exported = export_range(exporter, address, length);
    if (exported.mapping() != mapping) {
        check_standard(exporter, mapping);
    }
    return exported;
}

std::size_t BufferTable::size() const {
    const std::shared_lock lock(mutex_);
    return entries_.size();
}

} // namespace rdmabuf::detail
