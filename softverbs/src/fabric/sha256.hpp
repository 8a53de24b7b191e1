// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs::fabric {

inline constexpr std::size_t digest_bytes = 32;
using Digest = std::array<std::byte, digest_bytes>;

/// SHA-256 (FIPS 180-4). softverbs has its own implementation, because a cryptography library would
/// become a dependency of all programs that use softverbs, and AF_ALG sockets are not always
/// available.
class Sha256 {
  public:
    Sha256() noexcept;
    void update(std::span<const std::byte> bytes) noexcept;
    /// Returns the digest of all bytes that were passed to update(). The object cannot be used
    /// after this call.
    [[nodiscard]] Digest finish() noexcept;

  private:
    static constexpr std::size_t block_bytes = 64;
    void compress(const std::byte* block) noexcept;

    std::array<std::uint32_t, 8> state_;
    std::array<std::byte, block_bytes> block_{};
    std::size_t filled_ = 0;
    std::uint64_t total_ = 0;
};

/// Returns the HMAC-SHA-256 (RFC 2104) of the concatenation of all @p parts.
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key,
                                 std::span<const std::span<const std::byte>> parts) noexcept;

/// Returns whether the digests are equal. The comparison does not end at the first difference, so
/// that an attacker cannot measure how many bytes are correct.
[[nodiscard]] bool equal_in_constant_time(const Digest& one, const Digest& other) noexcept;

} // namespace softverbs::fabric
