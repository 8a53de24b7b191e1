// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

/// The first bytes of an encoded object: a type identifier of four letters, and a format version.
struct WireHeader {
    std::array<char, 4> kind;
    std::uint16_t version;
};

/// Encodes integers in little-endian order into a buffer. The buffer must be large enough for all
/// encoded integers.
class WireWriter {
  public:
    explicit WireWriter(std::span<std::byte> out) noexcept : rest_(out) {}
    WireWriter(std::span<std::byte> out, WireHeader header) noexcept : rest_(out) {
        for (const char letter : header.kind) {
            put(static_cast<std::uint8_t>(letter));
        }
        put(header.version);
    }

    template <class Unsigned>
    void put(Unsigned value) noexcept {
        for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
            rest_[i] = static_cast<std::byte>(value >> (8 * i) & 0xffU);
        }
        rest_ = rest_.subspan(sizeof(Unsigned));
    }
    void put_bytes(std::span<const std::uint8_t> bytes) noexcept {
        for (const std::uint8_t byte : bytes) {
            put(byte);
        }
    }

  private:
    std::span<std::byte> rest_;
};

/// Decodes integers that WireWriter encoded. The caller must have checked the size of the buffer.
class WireReader {
  public:
    explicit WireReader(std::span<const std::byte> in) noexcept : rest_(in) {}

    template <class Unsigned>
    [[nodiscard]] Unsigned get() noexcept {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
            value |= std::to_integer<std::uint64_t>(rest_[i]) << (8 * i);
        }
        rest_ = rest_.subspan(sizeof(Unsigned));
        return static_cast<Unsigned>(value);
    }
    void get_bytes(std::span<std::uint8_t> bytes) noexcept {
        for (std::uint8_t& byte : bytes) {
            byte = get<std::uint8_t>();
        }
    }

    /// Decodes a header and compares it with @p expected.
    /// @return EPROTO if the type identifier differs, EPROTONOSUPPORT if the version differs, no
    /// error if both are equal
    [[nodiscard]] ErrorInfo check(WireHeader expected) noexcept {
        for (const char letter : expected.kind) {
            if (get<std::uint8_t>() != static_cast<std::uint8_t>(letter)) {
                return {EPROTO, "decode", "the bytes encode an object of another type"};
            }
        }
        if (get<std::uint16_t>() != expected.version) {
            return {EPROTONOSUPPORT, "decode",
                    "another version of the format: use the same release of rdmabuf on both sides"};
        }
        return {};
    }

  private:
    std::span<const std::byte> rest_;
};

} // namespace rdmabuf::detail
