// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace rdmabuf::detail {

/// Owns a mapping of anonymous pages that are filled with zeros. The kernel allocates each page
/// when the page is first written.
class Pages {
  public:
    /// The size of a huge page in bytes, for pages of 4 KiB. Mappings of at least this size are
    /// aligned to this size.
    static constexpr std::size_t huge = std::size_t{1} << 21U;

    /// @throws Error ENOMEM if mmap(2) has no memory, or exceeds RLIMIT_MEMLOCK after mlockall(2)
    explicit Pages(std::size_t size);
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    [[nodiscard]] void* get() const noexcept { return pages_; }
    /// Requests huge pages for the first @p size bytes; the kernel may ignore this. Pages that were
    /// not used yet become huge when they are first used. Linux 6.1 and newer also replace the
    /// pages in use, at once.
    void make_huge(std::size_t size) noexcept;

  private:
    std::size_t size_;
    void* pages_;
};

} // namespace rdmabuf::detail
