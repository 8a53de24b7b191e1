// SPDX-License-Identifier: BSD-3-Clause
#include "layout.hpp"

#include <unistd.h>

namespace pingpong {

namespace {

constexpr std::size_t line = 64;

constexpr std::size_t round_up(std::size_t value) noexcept {
    return (value + line - 1) / line * line;
}

} // namespace

Layout make_layout(std::uint64_t size, Verb verb, std::size_t page_size) noexcept {
    // Atomics need a multiple of 8; everything else gets an address that is aligned to nothing.
    const std::size_t outgoing_skew = is_atomic(verb) ? 8 : 13;
    const std::size_t incoming_skew = is_atomic(verb) ? 24 : 37;

    Layout layout;
    layout.size = size;
    layout.region_offset = page_size;
    layout.outgoing = Layout::guard + outgoing_skew;
    layout.incoming = round_up(layout.outgoing + size + Layout::guard) + incoming_skew;
    layout.region_length = round_up(layout.incoming + size + Layout::guard);
    layout.total = layout.region_offset + layout.region_length + page_size;
    return layout;
}

Layout make_layout(std::uint64_t size, Verb verb) noexcept {
    return make_layout(size, verb, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

} // namespace pingpong
