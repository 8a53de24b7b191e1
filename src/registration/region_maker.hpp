// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdmabuf/registration.hpp>

#include "device/verbs_extensions.hpp"

namespace rdmabuf::detail {

// The verbs functions that register memory, for errors and trails.
inline constexpr const char* reg_mr_function = "ibv_reg_mr";
inline constexpr const char* reg_mr_ex_function = "ibv_reg_mr_ex";
inline constexpr const char* reg_dmabuf_function = "ibv_reg_dmabuf_mr";
inline constexpr const char* reg_data_direct_function = "mlx5dv_reg_dmabuf_mr";

/// Whether a path registers a dma-buf.
[[nodiscard]] constexpr bool is_dmabuf(RegistrationPath path) noexcept {
    return path == RegistrationPath::dmabuf || path == RegistrationPath::dmabuf_data_direct;
}

/// Part of a range, in bytes from the first byte of the range.
struct RangePiece {
    std::size_t offset = 0;
    std::size_t length = 0;
};

/// The pieces into which a range is cut: one, or pieces of at most `chunk` bytes. All pieces but
/// the first begin at a page boundary.
class RangePieces {
  public:
    RangePieces() = default;
    /// @param chunk  a multiple of the page size; 0 for one piece
    RangePieces(std::uintptr_t address, std::size_t length, std::size_t chunk);

    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    [[nodiscard]] RangePiece operator[](std::size_t i) const noexcept;

  private:
    std::size_t whole_ = 0;
    std::size_t first_ = 0;
    std::size_t chunk_ = 0;
    std::size_t count_ = 0;
};

/// Registers pieces of one range on one protection domain by one path. Calls neither exporters nor
/// drivers of the memory, so that any thread may use it. The pointers are not owned.
struct RegionMaker {
    const ProtectionDomain* pd = nullptr;
    RegistrationPath path{};
    Access access{};
    /// The address and the iova of the first byte of the range.
    std::uintptr_t address = 0;
    std::uint64_t iova = 0;
    /// The range as a dma-buf, on the dma-buf paths.
    const ExportedRange* exported = nullptr;
    const DmaHandle* dma_handle = nullptr;

    /// Thread safe. @throws Error what verbs answers
    [[nodiscard]] AnyRegion make(const RangePiece& piece) const;

  private:
    [[nodiscard]] AnyRegion make_dmabuf(const DmaBufRange& range, std::uint64_t piece_iova) const;
    [[nodiscard]] AnyRegion make_data_direct(const DmaBufRange& range,
                                             std::uint64_t piece_iova) const;
    [[nodiscard]] AnyRegion make_address(void* start, std::size_t length,
                                         std::uint64_t piece_iova) const;
    /// @param attributes  describe where the memory is
    /// @param explain     returns the meaning of an errno of the verb
    template <class Explain>
    [[nodiscard]] AnyRegion make_with_handle(MrInitAttr attributes, std::uint64_t piece_iova,
                                             std::size_t length, Explain explain) const;
};

} // namespace rdmabuf::detail
