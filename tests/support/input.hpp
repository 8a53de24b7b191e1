// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace softverbs::fuzz {

/// Reads values from the bytes of a fuzzer. After the last byte, values are filled up with zeros.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

    [[nodiscard]] bool empty() const { return rest_.empty(); }

    template <typename T>
    [[nodiscard]] T take() {
        T value{};
        const auto bytes = take(sizeof value);
        if (!bytes.empty()) {
            std::memcpy(&value, bytes.data(), bytes.size());
        }
        return value;
    }

    /// Returns the next @p count bytes, or fewer at the end.
    [[nodiscard]] std::span<const std::byte> take(std::size_t count) {
        const auto taken = rest_.first(std::min(count, rest_.size()));
        rest_ = rest_.subspan(taken.size());
        return std::as_bytes(taken);
    }

  private:
    std::span<const std::uint8_t> rest_;
};

} // namespace softverbs::fuzz
