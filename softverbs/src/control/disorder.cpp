// SPDX-License-Identifier: BSD-3-Clause
#include "control/disorder.hpp"

#include <errno.h>

#include <system_error>

#include "control/text.hpp"

namespace softverbs {

int Disorder::set(std::string_view text) {
    Disorder parsed;
    // An empty text disables all kinds of reordering. In any other text, an empty element of the
    // comma-separated list is an error.
    bool more = !text.empty();
    const std::size_t colon = text.find(':');
    if (colon != std::string_view::npos) {
        const std::string_view seed = text.substr(colon + 1);
        const auto parsed_seed = parse_number<std::uint64_t>(seed);
        if (!parsed_seed) {
            return EINVAL;
        }
        parsed.seed_ = parsed.random_ = *parsed_seed;
        text = text.substr(0, colon);
        // Multiply the seed by an odd constant, so that small seeds also change the upper bits. Set
        // bit 0, because the state of an xorshift generator must not be 0.
        parsed.random_ = parsed.random_ * 0x9e3779b97f4a7c15U | 1U;
    }
    while (more) {
        const std::size_t comma = text.find(',');
        const std::string_view kind = text.substr(0, comma);
        more = comma != std::string_view::npos;
        text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
        const bool all = kind == "all";
        if (!all && kind != "acks" && kind != "qps" && kind != "writes") {
            return EINVAL;
        }
        parsed.acks_ = parsed.acks_ || all || kind == "acks";
        parsed.qps_ = parsed.qps_ || all || kind == "qps";
        parsed.writes_ = parsed.writes_ || all || kind == "writes";
    }
    parsed.any_ = parsed.acks_ || parsed.qps_ || parsed.writes_;
    *this = parsed;
    return 0;
}

std::uint64_t Disorder::delay_ns() noexcept {
    // xorshift64: a pseudo-random number generator.
    random_ ^= random_ << 13U;
    random_ ^= random_ >> 7U;
    random_ ^= random_ << 17U;
    return (random_ >> 40U & 1U) != 0 ? 0 : (random_ >> 41U) % 1'000'000;
}

} // namespace softverbs
