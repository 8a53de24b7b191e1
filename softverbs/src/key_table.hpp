// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace softverbs {

struct Grant;

/// Finds what a key opens. Keys look random, differ from one process to the next, and are not given
/// out again for a long time, so that a stale one opens nothing.
class KeyTable {
  public:
    KeyTable();
    /// A new key for @p grant. Never 0.
    [[nodiscard]] std::uint32_t insert(Grant& grant);
    void erase(std::uint32_t key);
    /// Null: it opens nothing.
    [[nodiscard]] Grant* find(std::uint32_t key) const noexcept;

  private:
    [[nodiscard]] std::uint32_t next_key();

    // Implementation free to change; find() has to be a few nanoseconds.
    std::unordered_map<std::uint32_t, Grant*> grants_;
    std::uint32_t counter_ = 0;
    std::uint32_t secret_ = 0;
};

} // namespace softverbs
