// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/cpu_access.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport.hpp>

#include "support/memory_choice.hpp"

namespace mpi_ring {

/// Bytes of a RingMemory; may be none.
struct Piece {
    std::size_t offset = 0;
    std::size_t length = 0;
};

/// Memory of the kind that the command line asks for, registered as a whole.
class RingMemory {
  public:
    /// @param resolver  the one of @p endpoint
    /// @throws rdmabuf::Error, std::runtime_error when there is no such memory here
    RingMemory(const rdmabuf::transport::Endpoint& endpoint, const rdmabuf::Resolver& resolver,
               examples::MemoryType type, std::size_t size);

    /// What requests are told of.
    [[nodiscard]] const rdmabuf::transport::Memory& registered() const noexcept {
        return *registered_;
    }
    [[nodiscard]] void* at(std::size_t offset) const noexcept;

    // The CPU's use of it, in whatever way it reaches it. A dma-buf is bracketed as a whole: the
    // kernel has no other way. What devices do to other bytes meanwhile stays theirs.

    using Change = std::function<void(std::span<std::byte> bytes)>;
    using Look = std::function<void(std::span<const std::byte> bytes)>;
    using Combine = std::function<void(std::span<const std::byte> from, std::span<std::byte> into)>;

    void write(Piece piece, const Change& change);
    void read(Piece piece, const Look& look);
    /// Changes @p into by what is in @p from.
    void combine(Piece from, Piece into, const Combine& combine);

    /// "udmabuf memory, path dmabuf": how it came to be registered.
    [[nodiscard]] const std::string& description() const noexcept { return description_; }

  private:
    // Bytes that the CPU has no pointer to, in a copy.
    [[nodiscard]] std::vector<std::byte> copy_of(Piece piece) const;

    std::vector<std::byte> host_;
    std::optional<rdmabuf::Buffer> buffer_;
    std::optional<rdmabuf::transport::Memory> registered_;
    std::string description_;
};

} // namespace mpi_ring
