// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace rdmabuf::detail {

/// Anonymous zeroed pages. The kernel allocates each page when it is first written.
class Pages {
  public:
    /// The size of a huge page. Mappings of at least this size are aligned to it.
    static constexpr std::size_t huge = std::size_t{1} << 21U;

    /// @throws Error ENOMEM
    explicit Pages(std::size_t size);
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    [[nodiscard]] void* get() const noexcept { return pages_; }
    /// Requests huge pages for the first @p size bytes. If the kernel has any, it allocates them at
    /// once.
    void make_huge(std::size_t size) noexcept;

  private:
    std::size_t size_;
    void* pages_;
};

} // namespace rdmabuf::detail
