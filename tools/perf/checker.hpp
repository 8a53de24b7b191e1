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

#include <rdmabuf/exporter.hpp>

#include "layout.hpp"
#include "options.hpp"

namespace rdmabuf::tools::perf {

/// The error for a byte with a wrong value. what() contains the position of the byte, the number of
/// the transfer, the found value and the expected value.
class CheckError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The numbers of bytes that were compared with the expected bytes.
struct Checked {
    /// The number of received bytes that were compared.
    std::uint64_t data = 0;
    /// The number of all other compared bytes: the guards, and the outgoing data, which only atomic
    /// operations may change.
    std::uint64_t guard = 0;
};

/// Fills @p bytes with a sequence that depends on @p seed. It is very unlikely that two sequences
/// with different seeds have 8 bytes in common at any position. So the check detects data of
/// another transfer and data at a wrong position.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) noexcept;

/// Returns the value in the responder's memory before atomic operation @p transfer. Operations are
/// counted from 0.
[[nodiscard]] std::uint64_t atomic_value(Verb verb, std::uint64_t transfer,
                                         std::uint32_t depth) noexcept;
/// The operand of each fetch-and-add.
inline constexpr std::uint64_t atomic_addend = 0x0102030405060709;

/// Fills the memory of the initiator or the responder with known bytes, and later compares this
/// memory with the expected bytes.
class Checker {
  public:
    using Use = std::function<void(std::span<std::byte> bytes)>;
    /// Calls @p use with bytes of the buffer, as TestMemory::access() does.
    using AccessFunction = std::function<void(CpuAccessMode mode, std::size_t offset,
                                              std::size_t length, const Use& use)>;

    Checker(AccessFunction access, const Layout& layout, Verb verb, Role role)
        : access_(std::move(access)), layout_(layout), verb_(verb), role_(role) {}

    /// Fills the whole buffer: the outgoing data, and all other bytes as guards (bytes that must
    /// not change). For atomic operations, the outgoing data of the responder is the value that the
    /// first operation on each slot changes.
    void initialise();
    /// Prepares the slot of a transfer (the part of the region that the transfer uses) before the
    /// transfer is posted. For sends and writes, fills the outgoing data. For reads and atomic
    /// operations, clears the incoming data, which is that of the previous transfer in the slot.
    void before_post(std::uint64_t transfer);
    /// Compares the incoming data of a transfer with the expected data, and checks that the guards
    /// (bytes that must not change) of its slot are unchanged. Call this function when the data has
    /// arrived.
    /// @throws CheckError if a byte is wrong
    void arrived(std::uint64_t transfer);
    /// Checks, after the last transfer, that the outgoing data still has the expected values, and
    /// that all guards (bytes that must not change) are unchanged.
    /// @param transfers  the number of all transfers, including the warm-up
    /// @throws CheckError if a byte is wrong
    void finish(std::uint64_t transfers);

    [[nodiscard]] Checked checked() const noexcept { return checked_; }

  private:
    enum class Kind : std::uint8_t { guard, outgoing, incoming };
    /// A part of a slot (the memory of one transfer in flight). `begin` is its offset in the slot;
    /// offset and length are in bytes.
    struct Area {
        Kind kind;
        std::size_t begin;
        std::size_t length;
    };
    /// Returns the five areas of each slot, ordered by offset: guard, outgoing data, guard,
    /// incoming data, guard. If this side sends nothing or receives nothing, the area for this data
    /// is a guard, too.
    [[nodiscard]] std::array<Area, 5> areas() const noexcept;
    /// Returns the offset of a transfer's slot in the buffer, in bytes.
    [[nodiscard]] std::size_t slot(std::uint64_t transfer) const noexcept {
        return layout_.region_offset() + layout_.slot(transfer);
    }
    void fill_guard(std::span<std::byte> bytes, std::size_t position) const noexcept;
    /// Fills @p bytes with the data of a transfer. @p kind is `outgoing` or `incoming`, as this
    /// side sees the data.
    void fill_data(std::span<std::byte> bytes, Kind kind, std::uint64_t transfer) const noexcept;
    /// Compares the slot of a transfer with the expected bytes. Areas (see areas()) of the kind @p
    /// skipped are not compared.
    void check_slot(std::uint64_t transfer, Kind skipped);
    /// Compares the bytes @p found with the bytes in expected_.
    /// @param area  the name of the area, for the error text
    void compare(std::span<const std::byte> found, std::uint64_t transfer, const char* area);

    AccessFunction access_;
    Layout layout_;
    Verb verb_;
    Role role_;
    Checked checked_;
    std::vector<std::byte> expected_;
};

} // namespace rdmabuf::tools::perf
