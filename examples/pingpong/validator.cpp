// SPDX-License-Identifier: BSD-3-Clause
#include "validator.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

namespace pingpong {

namespace {

using rdmabuf::CpuAccessMode;

std::string hex(std::uint64_t value) {
    std::array<char, 24> text{};
    std::snprintf(text.data(), text.size(), "0x%02" PRIx64, value);
    return text.data();
}

[[noreturn]] void fail(Role role, std::uint64_t transfer, const std::string& where,
                       std::uint64_t expected, std::uint64_t found) {
    throw ValidationError("wrong data at the " + std::string(to_string(role)) + " after transfer " +
                          std::to_string(transfer) + " (counted from 0, warm-up included): " +
                          where + " is " + hex(found) + ", expected " + hex(expected));
}

// Says where a guard byte is by what lies nearer.
std::string describe_guard(std::size_t offset, std::size_t length, const char* previous,
                           const char* next) {
    const bool behind = next == nullptr || (previous != nullptr && offset < length - offset);
    return "guard byte " + std::to_string(behind ? offset + 1 : length - offset) +
           (behind ? " behind " : " before ") + (behind ? previous : next);
}

} // namespace

std::uint64_t atomic_value(Verb verb, std::uint64_t transfer) noexcept {
    return verb == Verb::fetch_add ? Pattern::mix(0) + transfer * atomic_addend
                                   : Pattern::mix(transfer);
}

// What is read or worked on by atomics is the responder's; what goes there and back is both ends'.
bool Validator::gives() const noexcept {
    return is_exchange(verb_) || role_ == Role::responder;
}
bool Validator::gets() const noexcept {
    return is_exchange(verb_) || role_ == Role::initiator;
}

Validator::Area Validator::outgoing() const noexcept {
    const std::size_t begin = layout_.region_offset + layout_.outgoing;
    return {.name = "the outgoing data", .begin = begin, .end = begin + layout_.size};
}
Validator::Area Validator::incoming() const noexcept {
    const std::size_t begin = layout_.region_offset + layout_.incoming;
    return {.name = "the incoming data", .begin = begin, .end = begin + layout_.size};
}

void Validator::initialise() {
    memory_->access(CpuAccessMode::write, [&](std::span<std::byte> buffer) {
        Pattern::of_guard(role_).fill(buffer);
        if (is_atomic(verb_) && gives()) {
            const std::uint64_t value = atomic_value(verb_, 0);
            std::memcpy(buffer.data() + outgoing().begin, &value, sizeof(value));
        }
    });
}

void Validator::fill(std::uint64_t transfer) {
    if (!gives() || is_atomic(verb_)) {
        return;
    }
    memory_->access(CpuAccessMode::write, [&](std::span<std::byte> buffer) {
        Pattern::of_transfer(transfer, role_).fill(buffer.subspan(outgoing().begin, layout_.size));
    });
}

void Validator::check(std::uint64_t transfer) {
    memory_->access(CpuAccessMode::read, [&](std::span<std::byte> buffer) {
        const Role other = role_ == Role::initiator ? Role::responder : Role::initiator;
        check_guards(buffer, transfer);
        if (is_atomic(verb_)) {
            // The initiator got what was there before, the responder has what is there after.
            const bool before = role_ == Role::initiator;
            check_value(buffer, before ? incoming() : outgoing(),
                        atomic_value(verb_, before ? transfer : transfer + 1), transfer);
            return;
        }
        if (gets()) {
            check_pattern(buffer, incoming(), other, transfer);
        }
        if (gives()) {
            check_pattern(buffer, outgoing(), role_, transfer);
        }
    });
}

void Validator::check_guards(std::span<const std::byte> buffer, std::uint64_t transfer) {
    const Pattern pattern = Pattern::of_guard(role_);
    std::size_t at = 0;
    const char* previous = nullptr;
    const auto check_until = [&](std::size_t end, const char* next) {
        const auto mismatch = pattern.check(buffer.subspan(at, end - at), at);
        if (mismatch) {
            fail(role_, transfer, describe_guard(mismatch->offset, end - at, previous, next),
                 mismatch->expected, mismatch->found);
        }
        validated_.guard += end - at;
    };
    for (const Area& area : {outgoing(), incoming()}) {
        const bool in_use = area.begin == outgoing().begin ? gives() : gets();
        if (in_use) {
            check_until(area.begin, area.name);
            at = area.end;
            previous = area.name;
        }
    }
    check_until(buffer.size(), nullptr);
}

void Validator::check_pattern(std::span<const std::byte> buffer, const Area& area, Role sender,
                              std::uint64_t transfer) {
    const auto mismatch = Pattern::of_transfer(transfer, sender)
                              .check(buffer.subspan(area.begin, area.end - area.begin));
    if (mismatch) {
        fail(role_, transfer,
             "byte " + std::to_string(mismatch->offset) + " of " + std::to_string(layout_.size) +
                 " of " + area.name,
             mismatch->expected, mismatch->found);
    }
    // One's own data was not transferred here: nothing was to touch it.
    (sender == role_ ? validated_.guard : validated_.data) += area.end - area.begin;
}

void Validator::check_value(std::span<const std::byte> buffer, const Area& area,
                            std::uint64_t expected, std::uint64_t transfer) {
    std::uint64_t found = 0;
    std::memcpy(&found, buffer.data() + area.begin, sizeof(found));
    if (found != expected) {
        fail(role_, transfer,
             role_ == Role::initiator ? "the value fetched" : "the value left behind", expected,
             found);
    }
    validated_.data += sizeof(found);
}

} // namespace pingpong
