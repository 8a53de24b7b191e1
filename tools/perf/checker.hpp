// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <rdmabuf/cpu_access.hpp>

#include "layout.hpp"
#include "options.hpp"

namespace rdmabuf::tools::perf {

/// A byte is not what it has to be; what() says which one, in which transfer, and both values.
class CheckError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The number of bytes that were compared.
struct Checked {
    /// Bytes that arrived here.
    std::uint64_t data = 0;
    /// Bytes that nothing was allowed to change.
    std::uint64_t guard = 0;
};

/// Fills @p bytes with a sequence that @p seed determines. Sequences of different seeds have no 8
/// bytes in common at any position, so data of another transfer and shifted data are detected.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) noexcept;

/// The value in the responder's memory when an atomic operation of number @p transfer begins.
[[nodiscard]] std::uint64_t atomic_value(Verb verb, std::uint64_t transfer,
                                         std::uint32_t depth) noexcept;
/// The number that each fetch-add adds.
inline constexpr std::uint64_t atomic_addend = 0x0102030405060709;

/// Fills the memory of one end and compares it with what has to be there.
class Checker {
  public:
    using Use = std::function<void(std::span<std::byte> bytes)>;
    /// Gives access to bytes of the buffer, as TestMemory::access() does.
    using AccessFunction = std::function<void(CpuAccessMode mode, std::size_t offset,
                                              std::size_t length, const Use& use)>;

    Checker(AccessFunction access, const Layout& layout, Verb verb, Role role)
        : access_(std::move(access)), layout_(layout), verb_(verb), role_(role) {}

    /// Fills the whole buffer: guards, the data that the peer reads, and the first operands of the
    /// atomic operations.
    void initialise();
    /// Fills the outgoing data of a transfer. Before a read or an atomic operation, overwrites the
    /// incoming data of the one before it.
    void before_post(std::uint64_t transfer);
    /// Compares the incoming data of a transfer and the guards of its slot. @throws CheckError
    void arrived(std::uint64_t transfer);
    /// Compares all guards and all outgoing data, after the last of @p transfers transfers.
    /// @throws CheckError
    void finish(std::uint64_t transfers);

    [[nodiscard]] Checked checked() const noexcept { return checked_; }

  private:
    enum class Kind : std::uint8_t { guard, outgoing, incoming };
    /// Bytes of a slot.
    struct Area {
        Kind kind;
        std::size_t begin;
        std::size_t length;
    };
    /// The areas of a slot in order. Outgoing or incoming data that the verb does not use at this
    /// end is a guard.
    [[nodiscard]] std::array<Area, 5> areas() const noexcept;
    /// The position of the slot of a transfer in the buffer.
    [[nodiscard]] std::size_t slot(std::uint64_t transfer) const noexcept {
        return layout_.region_offset() + layout_.slot(transfer);
    }
    void fill_guard(std::span<std::byte> bytes, std::size_t position) const noexcept;
    /// Writes the data that @p kind has in a transfer.
    void fill_data(std::span<std::byte> bytes, Kind kind, std::uint64_t transfer) const noexcept;
    /// Compares the areas of a slot, except those of @p skipped, after a transfer.
    void check_slot(std::uint64_t transfer, Kind skipped);
    /// Compares bytes of the buffer with expected_. @param area  for the error
    void compare(std::span<const std::byte> found, std::uint64_t transfer, const char* area);

    AccessFunction access_;
    Layout layout_;
    Verb verb_;
    Role role_;
    Checked checked_;
    std::vector<std::byte> expected_;
};

} // namespace rdmabuf::tools::perf
