// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/dma_handle.hpp>
#include <rdmabuf/registration.hpp>

#include "device/verbs_extensions.hpp"

namespace rdmabuf::detail {

// The following constants are the names of the verbs functions that register memory, for error
// texts.
inline constexpr const char* reg_mr_function = "ibv_reg_mr";
inline constexpr const char* reg_mr_ex_function = "ibv_reg_mr_ex";
inline constexpr const char* reg_dmabuf_function = "ibv_reg_dmabuf_mr";
inline constexpr const char* reg_data_direct_function = "mlx5dv_reg_dmabuf_mr";

[[nodiscard]] constexpr bool is_dmabuf(RegistrationPath path) noexcept {
    return path == RegistrationPath::dmabuf || path == RegistrationPath::dmabuf_data_direct;
}

/// A part of a range: its length, and its offset from the first byte of the range, in bytes.
struct RangePiece {
    std::size_t offset = 0;
    std::size_t length = 0;
};

/// Divides a range into pieces: a single piece, or pieces of at most `chunk` bytes. All pieces
/// except the first begin at a page boundary.
class RangePieces {
  public:
    RangePieces() = default;
    /// @param chunk  the maximum size of a piece in bytes, a multiple of the page size; 0: one
    /// piece
    RangePieces(std::uintptr_t address, std::size_t length, std::size_t chunk);

    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    [[nodiscard]] RangePiece operator[](std::size_t i) const noexcept;
    /// Returns the index of the piece that contains the byte at @p offset from the first byte.
    [[nodiscard]] std::size_t at(std::size_t offset) const noexcept;

  private:
    std::size_t whole_ = 0;
    std::size_t first_ = 0;
    std::size_t chunk_ = 0;
    std::size_t count_ = 0;
};

/// Registers pieces of one range on one protection domain by one registration path. Any thread may
/// use this object, because it calls no exporter and no driver of the memory. The objects to which
/// the pointers refer must outlive this object.
struct RegionMaker {
    const ProtectionDomain* pd = nullptr;
    RegistrationPath path{};
    Access access{};
    /// The address of the first byte of the range.
    std::uintptr_t address = 0;
    /// The iova of the first byte of the range.
    std::uint64_t iova = 0;
    /// The dma-buf of the range; null if the path is not a dma-buf path.
    const ExportedRange* exported = nullptr;
    /// The dma-buf of each part of the range, in the order of `parts`. A part has one or several
    /// pieces. Empty if all pieces are in `exported`.
    std::span<const ExportedRange> exported_parts = {};
    RangePieces parts = {};
    const DmaHandle* dma_handle = nullptr;

    /// Registers one piece. Thread safe.
    /// @throws Error with the errno value of the verbs function (on the path on_demand also of
    ///         ibv_advise_mr(3)); EINVAL if this library rejects the arguments
    [[nodiscard]] AnyRegion make(const RangePiece& piece) const;

  private:
    [[nodiscard]] AnyRegion make_dmabuf(const DmaBufRange& range, std::uint64_t piece_iova) const;
    [[nodiscard]] AnyRegion make_data_direct(const DmaBufRange& range,
                                             std::uint64_t piece_iova) const;
    [[nodiscard]] AnyRegion make_address(void* start, std::size_t length,
                                         std::uint64_t piece_iova) const;
    /// Registers memory with ibv_reg_mr_ex and `dma_handle`.
    /// @param attributes  the members that identify the memory; this function sets the other
    ///                    members
    /// @param explain     returns the error hint (cause and remedy) for an errno value of
    ///                    ibv_reg_mr_ex
    template <class Explain>
    [[nodiscard]] AnyRegion make_with_handle(MrInitAttr attributes, std::uint64_t piece_iova,
                                             std::size_t length, Explain explain) const;
};

} // namespace rdmabuf::detail
