// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/mapping.hpp"

namespace rdmabuf::detail {

/// A part of the address space that nothing else is put into, and that cannot be touched: addresses
/// for memory that the CPU has none of.
class ReservedAddresses {
  public:
    /// @param size  whole pages, not 0
    /// @throws Error what mmap(2) says
    explicit ReservedAddresses(std::size_t size);

    [[nodiscard]] std::uintptr_t start() const noexcept {
        return reinterpret_cast<std::uintptr_t>(start_.get());
    }

  private:
    UniquePages start_;
};

} // namespace rdmabuf::detail
