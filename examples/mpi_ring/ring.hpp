// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>

namespace mpi_ring {

/// The registered memory of a rank: host memory or a buffer of an exporter.
class RingMemory {
  public:
    /// @param kind  "host" or the name of an exporter
    /// @param size  in bytes
    /// @throws rdmabuf::Error or std::runtime_error if this machine has no such memory
    RingMemory(const rdmabuf::transport::Endpoint& endpoint, const rdmabuf::Resolver& resolver,
               const std::string& kind, std::size_t size);

    [[nodiscard]] const rdmabuf::transport::Memory& registered() const { return *registered_; }
    [[nodiscard]] void* at(std::size_t offset) const {
        return reinterpret_cast<void*>(registered_->address() + offset);
    }
    /// Copies numbers to this memory. @p offset is in bytes.
    void write(std::size_t offset, std::span<const float> numbers);
    /// Returns a copy of @p count numbers of this memory. @p offset is in bytes.
    [[nodiscard]] std::vector<float> read(std::size_t offset, std::size_t count) const;

    /// Returns the type of the memory and its registration path (the method of registration), such
    /// as "udmabuf memory, path dmabuf".
    [[nodiscard]] const std::string& description() const { return description_; }

  private:
    std::vector<std::byte> host_;
    std::optional<rdmabuf::Buffer> buffer_;
    std::optional<rdmabuf::transport::Memory> registered_;
    std::string description_;
};

/// Holds two channels of a rank: one to its right neighbour and one from its left neighbour. In a
/// ring of two ranks, both channels connect to the same rank.
class Ring {
  public:
    /// Connects to the right neighbour, and accepts the connection of the left neighbour at the
    /// same time. All ranks must call this constructor.
    /// @param handles  the handles of the listeners of all ranks, indexed by rank
    /// @throws std::runtime_error if a neighbour does not connect within 30 seconds
    Ring(const rdmabuf::transport::Endpoint& endpoint, rdmabuf::transport::Listener& listener,
         std::size_t rank, std::span<const rdmabuf::transport::Handle> handles);

    [[nodiscard]] std::size_t rank() const { return rank_; }
    [[nodiscard]] std::size_t size() const { return size_; }

    /// Sends a part of @p memory to the right neighbour, and receives into another part from the
    /// left neighbour at the same time. Offsets and lengths are in bytes; a length may be 0.
    /// @throws std::system_error if the connection to a neighbour fails; the error text contains
    ///         the rank of this neighbour
    void shift(const RingMemory& memory, std::size_t send_offset, std::size_t send_length,
               std::size_t receive_offset, std::size_t receive_length);

  private:
    void check(std::error_code error, const char* what, std::size_t neighbour) const;

    std::size_t rank_;
    std::size_t size_;
    std::optional<rdmabuf::transport::Channel> to_right_;
    std::optional<rdmabuf::transport::Channel> from_left_;
};

/// Replaces the @p count numbers at the start of @p memory by the sums over all ranks. A ring
/// reduce-scatter gives each rank the sums of one segment; an all-gather then sends the sums to all
/// ranks. Each rank sends about 2 (ranks - 1) / ranks times the size of the numbers.
/// @param memory  has all_reduce_size() bytes
/// @throws std::system_error if the connection to a neighbour fails
void all_reduce(Ring& ring, RingMemory& memory, std::size_t count);
/// Returns the size of the memory for all_reduce() in bytes: the size of @p count numbers and of
/// one received segment.
[[nodiscard]] std::size_t all_reduce_size(std::size_t ranks, std::size_t count);

/// Adds @p numbers to @p sums. A program that computes on a GPU would start a GPU kernel instead.
void add(std::span<const float> numbers, std::span<float> sums);

} // namespace mpi_ring
