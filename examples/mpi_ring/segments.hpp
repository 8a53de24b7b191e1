// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>

#include "ring_memory.hpp"

namespace mpi_ring {

/// Numbers cut into as many segments as there are ranks, and those into chunks, of which each is a
/// message. Segments of a count that the ranks do not divide differ by one number; where there are
/// fewer numbers than ranks, some are empty. All have the same number of chunks.
class Segments {
  public:
    /// @param count        of the numbers, not 0
    /// @param number_size  of each, in bytes
    /// @param chunk_size   at most, in bytes; a multiple of @p number_size
    Segments(std::size_t ranks, std::size_t count, std::size_t number_size,
             std::size_t chunk_size) noexcept
        : ranks_(ranks),
          count_(count),
          number_size_(number_size),
          chunk_size_(std::min(chunk_size, longest())),
          chunks_((longest() + chunk_size_ - 1) / chunk_size_) {}

    [[nodiscard]] std::size_t ranks() const noexcept { return ranks_; }
    /// Of each segment.
    [[nodiscard]] std::size_t chunks() const noexcept { return chunks_; }
    [[nodiscard]] std::size_t chunk_size() const noexcept { return chunk_size_; }
    /// All of them, in bytes.
    [[nodiscard]] std::size_t total() const noexcept { return count_ * number_size_; }

    [[nodiscard]] Piece chunk(std::size_t segment, std::size_t chunk) const noexcept {
        const std::size_t end = begin_of(segment + 1);
        const std::size_t from = std::min(begin_of(segment) + chunk * chunk_size_, end);
        return {.offset = from, .length = std::min(chunk_size_, end - from)};
    }

  private:
    [[nodiscard]] std::size_t longest() const noexcept {
        return (count_ / ranks_ + (count_ % ranks_ != 0 ? 1 : 0)) * number_size_;
    }
    // Without the overflow that segment * count could have.
    [[nodiscard]] std::size_t begin_of(std::size_t segment) const noexcept {
        return (count_ / ranks_ * segment + count_ % ranks_ * segment / ranks_) * number_size_;
    }

    std::size_t ranks_;
    std::size_t count_;
    std::size_t number_size_;
    std::size_t chunk_size_;
    std::size_t chunks_;
};

} // namespace mpi_ring
