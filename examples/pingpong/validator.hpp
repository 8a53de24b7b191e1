// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "layout.hpp"
#include "memory.hpp"
#include "pattern.hpp"

namespace pingpong {

/// A byte is not what it must be; what() says which, in which transfer, and what was there instead.
class ValidationError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// How many bytes have been compared.
struct Validated {
    /// Bytes that were transferred.
    std::uint64_t data = 0;
    /// Bytes that nothing was to touch.
    std::uint64_t guard = 0;
};

/// What stands in the responder's eight bytes when transfer number @p transfer begins.
[[nodiscard]] std::uint64_t atomic_value(Verb verb, std::uint64_t transfer) noexcept;
/// What fetch-add adds each time.
inline constexpr std::uint64_t atomic_addend = 0x0102030405060709;

/// Fills the memory of one end before each transfer and checks all of it afterwards.
class Validator {
  public:
    Validator(Memory& memory, const Layout& layout, Verb verb, Role role) noexcept
        : memory_(&memory), layout_(layout), verb_(verb), role_(role) {}

    /// Fills the whole buffer: guards everywhere, and what the first atomic expects.
    void initialise();
    /// Puts what this end gives in this transfer into its place.
    void fill(std::uint64_t transfer);
    /// Checks every byte of the buffer. @throws ValidationError
    void check(std::uint64_t transfer);

    [[nodiscard]] Validated validated() const noexcept { return validated_; }

  private:
    struct Area {
        const char* name;
        std::size_t begin; // in the buffer
        std::size_t end;
    };
    [[nodiscard]] Area outgoing() const noexcept;
    [[nodiscard]] Area incoming() const noexcept;
    [[nodiscard]] bool gives() const noexcept;
    [[nodiscard]] bool gets() const noexcept;

    void check_guards(std::span<const std::byte> buffer, std::uint64_t transfer);
    void check_pattern(std::span<const std::byte> buffer, const Area& area, Role sender,
                       std::uint64_t transfer);
    void check_value(std::span<const std::byte> buffer, const Area& area, std::uint64_t expected,
                     std::uint64_t transfer);

    Memory* memory_;
    Layout layout_;
    Verb verb_;
    Role role_;
    Validated validated_;
};

} // namespace pingpong
