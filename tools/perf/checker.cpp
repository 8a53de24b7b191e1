// SPDX-License-Identifier: BSD-3-Clause
#include "checker.hpp"

#include <endian.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace rdmabuf::tools::perf {

namespace {

/// Returns a hash of @p value that depends on every bit of @p value. Different values have
/// different hashes.
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value += 0x9e3779b97f4a7c15; // 2^64 divided by the golden ratio
    value = (value ^ (value >> 31)) * 0xd6e8feb86659fd93;
    value = (value ^ (value >> 29)) * 0xd6e8feb86659fd93;
    return value ^ (value >> 32);
}

} // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) noexcept {
    std::uint64_t number = mix(seed);
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
        const std::uint64_t product = number++ * 0x9e3779b97f4a7c15;
        const std::uint64_t word = htole64(product ^ (product >> 32));
        std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
    }
}

std::uint64_t atomic_value(Verb verb, std::uint64_t transfer, std::uint32_t depth) noexcept {
    return verb == Verb::fetch_add ? mix(transfer % depth) + transfer / depth * atomic_addend
                                   : mix(transfer);
}

std::array<Checker::Area, 5> Checker::areas() const noexcept {
    const bool sends = is_exchange(verb_) || role_ == Role::responder;
    const bool receives = is_exchange(verb_) || role_ == Role::initiator;
    const std::size_t outgoing_end = layout_.outgoing() + layout_.size();
    const std::size_t incoming_end = layout_.incoming() + layout_.size();
    return {{{Kind::guard, 0, layout_.outgoing()},
             {sends ? Kind::outgoing : Kind::guard, layout_.outgoing(), layout_.size()},
             {Kind::guard, outgoing_end, layout_.incoming() - outgoing_end},
             {receives ? Kind::incoming : Kind::guard, layout_.incoming(), layout_.size()},
             {Kind::guard, incoming_end, layout_.slot_size() - incoming_end}}};
}

void Checker::fill_guard(std::span<std::byte> bytes, std::size_t position) const noexcept {
    fill_pattern(bytes, std::uint64_t{position} * 4 + 2 + static_cast<std::uint64_t>(role_));
}

void Checker::fill_data(std::span<std::byte> bytes, Kind kind,
                        std::uint64_t transfer) const noexcept {
    if (is_atomic(verb_)) {
        const std::uint64_t value = atomic_value(verb_, transfer, layout_.depth());
        std::memcpy(bytes.data(), &value, sizeof value);
        return;
    }
    // Each send or write has different data. The data of a read depends only on the slot (the part
    // of the memory that the transfer uses), because the responder fills its memory only once.
    const std::uint64_t number = is_exchange(verb_) ? transfer : transfer % layout_.depth();
    const bool initiators = (role_ == Role::initiator) == (kind == Kind::outgoing);
    fill_pattern(bytes, number * 4 + (initiators ? 0 : 1));
}

void Checker::initialise() {
    const std::size_t page = layout_.region_offset();
    for (const std::size_t begin : {std::size_t{0}, page + layout_.region_length()}) {
        access_(CpuAccessMode::write, begin, page,
                [&](std::span<std::byte> bytes) { fill_guard(bytes, begin); });
    }
    for (std::uint32_t i = 0; i < layout_.depth(); ++i) {
        access_(CpuAccessMode::write, slot(i), layout_.slot_size(), [&](std::span<std::byte> all) {
            for (const Area& area : areas()) {
                const auto bytes = all.subspan(area.begin, area.length);
                area.kind == Kind::outgoing ? fill_data(bytes, area.kind, i)
                                            : fill_guard(bytes, slot(i) + area.begin);
            }
        });
    }
}

void Checker::before_post(std::uint64_t transfer) {
    access_(
        CpuAccessMode::write, slot(transfer), layout_.slot_size(), [&](std::span<std::byte> all) {
            if (is_exchange(verb_)) {
                fill_data(all.subspan(layout_.outgoing(), layout_.size()), Kind::outgoing,
                          transfer);
            } else {
                std::ranges::fill(all.subspan(layout_.incoming(), layout_.size()), std::byte{0});
            }
        });
}

void Checker::arrived(std::uint64_t transfer) {
    check_slot(transfer, Kind::outgoing);
}

void Checker::finish(std::uint64_t transfers) {
    const std::size_t page = layout_.region_offset();
    for (const std::size_t begin : {std::size_t{0}, page + layout_.region_length()}) {
        access_(CpuAccessMode::read, begin, page, [&](std::span<const std::byte> bytes) {
            expected_.resize(page);
            fill_guard(expected_, begin);
            compare(bytes, transfers - 1, "the guard page");
            checked_.guard += page;
        });
    }
    for (std::uint64_t i = 0; i < layout_.depth(); ++i) {
        // `rounds` is the number of transfers that used this slot. Because each atomic operation
        // changes the value in the slot, the slot now contains the value for the next atomic
        // operation.
        const std::uint64_t rounds = (transfers + layout_.depth() - 1 - i) / layout_.depth();
        const std::uint64_t last = rounds > 0 && !is_atomic(verb_) ? rounds - 1 : rounds;
        check_slot(i + last * layout_.depth(), Kind::incoming);
    }
}

void Checker::check_slot(std::uint64_t transfer, Kind skipped) {
    access_(CpuAccessMode::read, slot(transfer), layout_.slot_size(),
            [&](std::span<const std::byte> all) {
                for (const Area& area : areas()) {
                    if (area.kind == skipped) {
                        continue;
                    }
                    expected_.resize(area.length);
                    area.kind == Kind::guard ? fill_guard(expected_, slot(transfer) + area.begin)
                                             : fill_data(expected_, area.kind, transfer);
                    constexpr std::array names{"a guard", "the outgoing data", "the incoming data"};
                    compare(all.subspan(area.begin, area.length), transfer,
                            names[static_cast<std::size_t>(area.kind)]);
                    (area.kind == Kind::incoming ? checked_.data : checked_.guard) += area.length;
                }
            });
}

void Checker::compare(std::span<const std::byte> found, std::uint64_t transfer, const char* area) {
    if (std::memcmp(found.data(), expected_.data(), found.size()) == 0) {
        return;
    }
    const auto [wrong, right] = std::ranges::mismatch(found, expected_);
    throw CheckError(fmt::format(
        "wrong data at the {} after transfer {} (counted from 0, with the warm-up): byte {} of {} "
        "of {} is {:#04x}, expected {:#04x}",
        to_string(role_), transfer, wrong - found.begin(), found.size(), area,
        std::to_integer<unsigned>(*wrong), std::to_integer<unsigned>(*right)));
}

} // namespace rdmabuf::tools::perf
