// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs::fabric {

inline constexpr std::size_t digest_bytes = 32;
using Digest = std::array<std::byte, digest_bytes>;

/// SHA-256 as FIPS 180-4 defines it. The kernel's AF_ALG may be absent and a crypto library would
/// be a dependency of every program under test, so the library has its own.
class Sha256 {
  public:
    Sha256() noexcept;
    void update(std::span<const std::byte> bytes) noexcept;
    /// The digest of all bytes so far. The object cannot be used afterwards.
    [[nodiscard]] Digest finish() noexcept;

  private:
    static constexpr std::size_t block_bytes = 64;
    void compress(const std::byte* block) noexcept;

    std::array<std::uint32_t, 8> state_;
    std::array<std::byte, block_bytes> block_{};
    std::size_t filled_ = 0;
    std::uint64_t total_ = 0;
};

/// HMAC-SHA-256 as RFC 2104 defines it, over the parts one after the other.
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key,
                                 std::span<const std::span<const std::byte>> parts) noexcept;

/// Compares two digests in a time that does not depend on their contents.
[[nodiscard]] bool equal_in_constant_time(const Digest& one, const Digest& other) noexcept;

} // namespace softverbs::fabric
