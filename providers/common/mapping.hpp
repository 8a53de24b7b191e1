// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rdmabuf/error.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// Deleter that unmaps memory of mmap(2).
struct Unmap {
    std::size_t size;
    void operator()(std::byte* start) const noexcept;
};
using UniquePages = std::unique_ptr<std::byte, Unmap>;

/// Owns a shared, readable and writable mapping of a file.
class Mapping {
  public:
    /// Maps @p size bytes of the file @p fd, beginning at @p offset bytes.
    /// @throws Error with the errno of mmap(2)
    Mapping(int fd, std::size_t size, off_t offset = 0);

    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {start_.get(), start_.get_deleter().size};
    }

  private:
    UniquePages start_;
};

/// Reserves a range of the process's addresses that the CPU cannot access. The range identifies
/// memory that has no CPU address.
class ReservedAddresses {
  public:
    /// @param size  in bytes; a multiple of the page size, not 0
    /// @throws Error with the errno of mmap(2)
    explicit ReservedAddresses(std::size_t size);

    [[nodiscard]] std::uintptr_t start() const noexcept {
        return reinterpret_cast<std::uintptr_t>(start_.get());
    }

  private:
    UniquePages start_;
};

/// Returns a new, empty memfd that is close-on-exec and can be sealed, or the errno of
/// memfd_create(2).
[[nodiscard]] Result<UniqueFd> open_memfd();

/// Returns a new memfd of @p size bytes with the seals @p seals (F_SEAL_*).
/// @throws Error with the errno of memfd_create(2), ftruncate(2) or fcntl(2)
[[nodiscard]] UniqueFd make_memfd(std::size_t size, int seals);

} // namespace rdmabuf::detail
