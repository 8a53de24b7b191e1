// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rdmabuf::tools {

/// Returns the candidate that differs from @p name in the fewest characters; empty if every
/// candidate differs in more than two characters, or in more than half of the characters of
/// @p name. The comparison ignores upper and lower case, and '-' equals '_'.
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
