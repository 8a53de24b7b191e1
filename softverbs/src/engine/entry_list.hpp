// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/node.hpp"
#include "objects/memory.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// The memory of a request's entries, one after the other, for as long as the lock is held.
class EntryList {
  public:
    EntryList() noexcept {} // NOLINT: windows_ is left as it is
    ~EntryList();
    EntryList(const EntryList&) = delete;
    EntryList& operator=(const EntryList&) = delete;

    /// Opens the first @p length bytes of the entries. @param write  whether they are written to
    [[nodiscard]] Denied open(const Pd& pd, std::span<const ibv_sge> entries, std::uint64_t length,
                              bool write);
    /// A single window, of a peer's request.
    void open(const Window& window, bool write);

    [[nodiscard]] std::span<const Window> windows() const { return {windows_.data(), count_}; }

    /// Writes @p bytes from @p offset on. The caller knows that they fit. False: the memory was
    /// revoked.
    [[nodiscard]] bool put(std::uint64_t offset, std::span<const std::byte> bytes) const;
    /// Fetches the bytes of all segments, and writes them from @p offset on: 0, or an errno; ESTALE
    /// when they were withdrawn meanwhile, EFAULT when the memory here was revoked.
    /// @param from  null: they are in this process
    /// @param lane  the one they came in
    [[nodiscard]] int fetch(std::uint64_t offset, fabric::Connection* from, fabric::Lane lane,
                            std::span<const fabric::Segment> segments) const;
    /// Describes @p length bytes from @p offset on as parts to read from, until the next call. How
    /// many parts; none: the memory was revoked. Those of null regions are zeros, and those of
    /// unmapped memory copies, of which there are not more than a record has.
    [[nodiscard]] std::optional<std::size_t> parts(std::uint64_t offset, std::uint64_t length,
                                                   std::span<std::span<const std::byte>> out) const;

  private:
    void add(const Window& window);
    /// Calls function(window, offset in it, length) for each piece of a range.
    template <class Function>
    void for_each(std::uint64_t offset, std::uint64_t length, Function&& function) const;

    std::array<Window, max_sge> windows_; // only as many as count_ are written, and read
    std::size_t count_ = 0;
    bool write_ = false;
};

} // namespace softverbs
