// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>

namespace rdmabuf::detail {

/// Gives back what mmap(2) gave.
struct Unmap {
    std::size_t size;
    void operator()(std::byte* start) const noexcept;
};
using UniquePages = std::unique_ptr<std::byte, Unmap>;

/// Owns a shared, readable and writable mapping of a file.
class Mapping {
  public:
    /// @throws Error what mmap(2) says
    Mapping(int fd, std::size_t size, off_t offset = 0);

    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {start_.get(), start_.get_deleter().size};
    }

  private:
    UniquePages start_;
};

} // namespace rdmabuf::detail
