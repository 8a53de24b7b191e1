// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/node.hpp"
#include "objects/mapping.hpp"
#include "objects/memory.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// Returns whether the CPU can access a memory range (window) without calls before and after the
/// access.
[[nodiscard]] inline bool is_plain(const Window& window) noexcept {
    return window.data != nullptr && !is_unmapped(window) &&
           (window.mr->mapping == nullptr || !window.mr->mapping->is_dmabuf);
}

/// The memory of a request's scatter/gather list, as one range of bytes. Valid while Process::lock
/// is held.
class EntryList {
  public:
    EntryList() noexcept {} // NOLINT: windows_ is not initialised, to save time
    ~EntryList();
    EntryList(const EntryList&) = delete;
    EntryList& operator=(const EntryList&) = delete;

    /// Checks and opens the first @p length bytes of the scatter/gather list.
    /// @param write  whether the memory will be written
    [[nodiscard]] Denied open(const Pd& pd, std::span<const ibv_sge> entries, std::uint64_t length,
                              bool write);
    /// Opens the memory range that a request of a peer accesses.
    void open(const Window& window, bool write);

    [[nodiscard]] std::span<const Window> windows() const { return {windows_.data(), count_}; }

    /// Writes @p bytes at @p offset. The caller has checked the bounds. Returns false if the memory
    /// was revoked.
    [[nodiscard]] bool put(std::uint64_t offset, std::span<const std::byte> bytes) const;
    /// Copies the data of all segments from the sender's memory to @p offset. Returns 0 or an
    /// errno: ESTALE (the sender has withdrawn a segment), EFAULT (the local memory was revoked),
    /// or an errno of Connection::pull().
    /// @param from  the sender; null: the segments are in this process
    /// @param lane  whether the segments arrived in a request or in a response
    [[nodiscard]] int fetch(std::uint64_t offset, fabric::Connection* from, fabric::Lane lane,
                            std::span<const fabric::Segment> segments) const;
    /// Stores in @p out the parts of memory that contain the @p length bytes at @p offset, and
    /// returns their number. Returns no value if the memory was revoked. The parts are valid until
    /// the next call. A null region is read as zeros. Memory that the CPU cannot access is copied
    /// to a bounce buffer, so @p length must not exceed record_payload.
    [[nodiscard]] std::optional<std::size_t> parts(std::uint64_t offset, std::uint64_t length,
                                                   std::span<std::span<const std::byte>> out) const;

  private:
    void add(const Window& window);
    /// Calls function(window, offset in the window, length) for each window (the memory range of
    /// one scatter/gather entry) that overlaps the range.
    template <class Function>
    void for_each(std::uint64_t offset, std::uint64_t length, Function&& function) const;

    std::array<Window, max_sge> windows_; // only the first count_ are initialised
    std::size_t count_ = 0;
    bool write_ = false;
};

} // namespace softverbs
