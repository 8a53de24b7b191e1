// SPDX-License-Identifier: BSD-3-Clause
#include "names.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace rdmabuf::tools {

namespace {

constexpr std::size_t max_edits = 2;

std::string folded(std::string_view name) {
    std::string text(name);
    for (char& each : text) {
        each =
            each == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
    }
    return text;
}

/// Returns the minimum number of edits that turn @p a into @p b. An edit inserts, deletes or
/// replaces one character, or exchanges two adjacent characters.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    // Row i of a table has the distances between the first i characters of `a` and each prefix of
    // `b`. `last` is the row above `row`, and `before` is the row above `last`.
    std::vector<std::size_t> before;
    std::vector<std::size_t> last(b.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::vector<std::size_t> row(b.size() + 1, i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = last[j] + (a[i] == b[j] ? 0 : 1);
            row[j + 1] = std::min({replaced, last[j + 1] + 1, row[j] + 1});
            if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
                row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
            }
        }
        before = std::exchange(last, std::move(row));
    }
    return last.back();
}

} // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
    const std::string wanted = folded(name);
    std::size_t distance = std::min(max_edits, wanted.size() / 2) + 1;
    std::string nearest;
    for (const std::string& candidate : candidates) {
        const std::size_t edits = edit_distance(wanted, folded(candidate));
        if (edits < distance) {
            distance = edits;
            nearest = candidate;
        }
    }
    return nearest;
}

std::string suggestion(std::string_view name, std::span<const std::string> candidates) {
    const std::string nearest = nearest_name(name, candidates);
    return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

} // namespace rdmabuf::tools
