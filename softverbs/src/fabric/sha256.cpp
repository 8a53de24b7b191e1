// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace softverbs::fabric {
namespace {

// FIPS 180-4, section 4.2.2: the first 32 bits of the fractional parts of the cube roots of the
// first 64 prime numbers.
constexpr std::array<std::uint32_t, 64> round_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
// FIPS 180-4, section 5.3.3: the first 32 bits of the fractional parts of the square roots of the
// first 8 prime numbers.
constexpr std::array<std::uint32_t, 8> initial_state{
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

std::uint32_t load_big_endian(const std::byte* from) noexcept {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) {
        value = value << 8U | std::to_integer<std::uint32_t>(from[i]);
    }
    return value;
}

template <class Value>
void store_big_endian(Value value, std::byte* to) noexcept {
    for (std::size_t i = sizeof value; i-- > 0;) {
        to[i] = static_cast<std::byte>(value & 0xffU);
        value >>= 8U;
    }
}

} // namespace

Sha256::Sha256() noexcept : state_(initial_state) {}

void Sha256::update(std::span<const std::byte> bytes) noexcept {
    total_ += bytes.size();
    while (!bytes.empty()) {
        const std::size_t taken = std::min(bytes.size(), block_.size() - filled_);
        std::copy_n(bytes.data(), taken, block_.data() + filled_);
        filled_ += taken;
        bytes = bytes.subspan(taken);
        if (filled_ == block_.size()) {
            compress(block_.data());
            filled_ = 0;
        }
    }
}

Digest Sha256::finish() noexcept {
    const std::uint64_t bits = total_ * 8;
    constexpr std::byte end_mark{0x80};
    update({&end_mark, 1});
    constexpr std::byte zero{};
    while (filled_ != block_.size() - sizeof bits) {
        update({&zero, 1});
    }
    std::array<std::byte, sizeof bits> length{};
    store_big_endian(bits, length.data());
    update(length);
    Digest digest{};
    for (std::size_t i = 0; i < state_.size(); ++i) {
        store_big_endian(state_[i], digest.data() + i * sizeof(std::uint32_t));
    }
    return digest;
}

void Sha256::compress(const std::byte* block) noexcept {
    using std::rotr;
    std::array<std::uint32_t, 64> schedule{};
    for (std::size_t i = 0; i < 16; ++i) {
        schedule[i] = load_big_endian(block + i * sizeof(std::uint32_t));
    }
    for (std::size_t i = 16; i < schedule.size(); ++i) {
        const std::uint32_t early = schedule[i - 15];
        const std::uint32_t late = schedule[i - 2];
        schedule[i] = schedule[i - 16] + (rotr(early, 7) ^ rotr(early, 18) ^ early >> 3U) +
                      schedule[i - 7] + (rotr(late, 17) ^ rotr(late, 19) ^ late >> 10U);
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const std::uint32_t first = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) +
                                    ((e & f) ^ (~e & g)) + round_constants[i] + schedule[i];
        const std::uint32_t second =
            (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state_.size(); ++i) {
        state_[i] += added[i];
    }
}

Digest hmac_sha256(std::span<const std::byte> key,
                   std::span<const std::span<const std::byte>> parts) noexcept {
    constexpr std::size_t block_bytes = 64;
    std::array<std::byte, block_bytes> padded{};
    if (key.size() > padded.size()) {
        Sha256 shortened;
        shortened.update(key);
        const Digest digest = shortened.finish();
        std::copy(digest.begin(), digest.end(), padded.begin());
    } else {
        std::copy(key.begin(), key.end(), padded.begin());
    }
    auto inner_key = padded;
    auto outer_key = padded;
    for (std::size_t i = 0; i < padded.size(); ++i) {
        inner_key[i] ^= std::byte{0x36};
        outer_key[i] ^= std::byte{0x5c};
    }
    Sha256 inner;
    inner.update(inner_key);
    for (const auto part : parts) {
        inner.update(part);
    }
    const Digest inner_digest = inner.finish();
    Sha256 outer;
    outer.update(outer_key);
    outer.update(inner_digest);
    return outer.finish();
}

bool equal_in_constant_time(const Digest& one, const Digest& other) noexcept {
    std::byte difference{};
    for (std::size_t i = 0; i < one.size(); ++i) {
        difference |= one[i] ^ other[i];
    }
    return difference == std::byte{};
}

} // namespace softverbs::fabric
