// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>

#include <rdmabuf/transport.hpp>

namespace mpi_ring {

/// This rank's place among all, with a channel from its left neighbour and one to its right one.
/// With two ranks both are the same neighbour, and the channels two.
class Ring {
  public:
    /// Connects with both neighbours, who do the same meanwhile.
    /// @param listener  of the handle at position @p rank of @p handles
    /// @throws std::runtime_error when a neighbour cannot be reached within @p timeout
    Ring(const rdmabuf::transport::Endpoint& endpoint, rdmabuf::transport::Listener& listener,
         int rank, std::span<const rdmabuf::transport::Handle> handles,
         std::chrono::milliseconds timeout);

    [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] rdmabuf::transport::Channel& from_left() noexcept { return from_left_; }
    [[nodiscard]] rdmabuf::transport::Channel& to_right() noexcept { return to_right_; }

    /// Throws std::system_error, which names the neighbour, when there is an @p error.
    void check_left(std::error_code error) const;
    void check_right(std::error_code error) const;

    /// Returns once all ranks have called it: a message of no bytes goes round twice.
    void barrier();

  private:
    Ring(std::size_t rank, std::size_t size,
         std::pair<rdmabuf::transport::Channel, rdmabuf::transport::Channel> channels);
    void pass_on();

    std::size_t rank_;
    std::size_t size_;
    rdmabuf::transport::Channel to_right_;
    rdmabuf::transport::Channel from_left_;
};

} // namespace mpi_ring
