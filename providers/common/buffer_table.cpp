// SPDX-License-Identifier: BSD-3-Clause
#include "common/buffer_table.hpp"

#include <atomic>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include <rdmabuf/detail/hexadecimal.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {
namespace {

/// One counter for all exporters, so that an address that changes hands changes its generation too.
std::uint64_t next_generation() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

} // namespace

void BufferTable::add(Allocation allocation, const UniqueFd& dmabuf) {
    allocation.generation = next_generation();
    const std::uintptr_t base = allocation.base;
    const std::unique_lock lock(mutex_);
    entries_.emplace(base, Entry{std::move(allocation), &dmabuf});
}

void BufferTable::remove(std::uintptr_t base) noexcept {
    const std::unique_lock lock(mutex_);
    entries_.erase(base);
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

ExportedRange BufferTable::export_range(std::string_view exporter, std::uintptr_t address,
                                        std::size_t length) const {
    constexpr const char* function = "export_range";
    if (length == 0) {
        throw Error(EINVAL, function, "a range of 0 bytes cannot be exported");
    }
    // Until the descriptor is duplicated: another thread may be about to free the buffer.
    const std::shared_lock lock(mutex_);
    const Entry* const entry = holder(address);
    if (entry == nullptr) {
        throw Error(EFAULT, function,
                    hexadecimal(address) + " lies in no live buffer of this " +
                        std::string(exporter) + " allocator");
    }
    const std::size_t offset = address - entry->allocation.base;
    // Compared this way round, offset + length cannot overflow.
    if (length > entry->allocation.length - offset) {
        throw Error(ERANGE, function,
                    std::to_string(length) + " bytes at offset " + std::to_string(offset) +
                        " leave the buffer of " + std::to_string(entry->allocation.length) +
                        " bytes at " + hexadecimal(entry->allocation.base));
    }
    return {std::string(exporter), entry->dmabuf->duplicate(), offset, length, address};
}

} // namespace rdmabuf::detail
