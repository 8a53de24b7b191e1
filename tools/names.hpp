// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rdmabuf::tools {

/// Returns the candidate that needs the fewest edits to become @p name; empty if every candidate
/// needs more than two edits, or more edits than half the length of @p name. An edit exchanges two
/// adjacent characters, or inserts, deletes or replaces one. The comparison ignores upper and lower
/// case, and '-' equals '_'.
[[nodiscard]] std::string nearest_name(std::string_view name,
                                       std::span<const std::string> candidates);

/// Returns "; did you mean 'mlx5_0'?" for the nearest name; empty if no candidate is near.
[[nodiscard]] std::string suggestion(std::string_view name,
                                     std::span<const std::string> candidates);

/// Returns the names in a table of names and values.
template <class Table>
[[nodiscard]] std::vector<std::string> names_of(const Table& table) {
    std::vector<std::string> names;
    names.reserve(std::size(table));
    for (const auto& row : table) {
        names.push_back(row.first);
    }
    return names;
}

} // namespace rdmabuf::tools
