// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>

#include <rdmabuf/topology.hpp>

namespace rdmabuf {
namespace {

/// Removes a hexadecimal number of @p min to @p max digits from the beginning of @p text, and
/// returns the number. Returns std::nullopt if @p text does not begin with a number of this length.
std::optional<std::uint32_t> take_number(std::string_view& text, std::size_t min, std::size_t max) {
    std::uint32_t value = 0;
    const char* const begin = text.data();
    const auto [end, error] = std::from_chars(begin, begin + text.size(), value, 16);
    const auto digits = static_cast<std::size_t>(end - begin);
    if (error != std::errc() || digits < min || digits > max) {
        return std::nullopt;
    }
    text.remove_prefix(digits);
    return value;
}

/// Removes @p separator from the beginning of @p text and returns true. Returns false if @p text
/// does not begin with @p separator.
bool take(std::string_view& text, char separator) {
    if (!text.starts_with(separator)) {
        return false;
    }
    text.remove_prefix(1);
    return true;
}

} // namespace

std::optional<PciAddress> PciAddress::parse(std::string_view text) noexcept {
    const auto domain = take_number(text, 4, 8);
    if (!domain || !take(text, ':')) {
        return std::nullopt;
    }
    const auto bus = take_number(text, 2, 2);
    if (!bus || !take(text, ':')) {
        return std::nullopt;
    }
    const auto device = take_number(text, 2, 2);
    if (!device || *device > 0x1f || !take(text, '.')) {
        return std::nullopt;
    }
    const auto function = take_number(text, 1, 1);
    if (!function || *function > 7 || !text.empty()) {
        return std::nullopt;
    }
    return PciAddress{.domain = *domain,
                      .bus = static_cast<std::uint8_t>(*bus),
                      .device = static_cast<std::uint8_t>(*device),
                      .function = static_cast<std::uint8_t>(*function)};
}

std::string to_string(const PciAddress& address) {
    std::array<char, 24> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x",
                  static_cast<unsigned>(address.domain), static_cast<unsigned>(address.bus),
                  static_cast<unsigned>(address.device), static_cast<unsigned>(address.function));
    return text.data();
}

double PciLink::bandwidth() const noexcept {
    const double encoding = transfer_rate <= 5    ? 8.0 / 10
                            : transfer_rate <= 32 ? 128.0 / 130
                                                  : 236.0 / 256;
    return transfer_rate * encoding * width;
}

} // namespace rdmabuf
