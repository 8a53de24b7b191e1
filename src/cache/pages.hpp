// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace rdmabuf::detail {

/// Zeroed pages that take no memory before they are used.
class Pages {
  public:
    /// The size of a huge page. What is as large, or larger, begins where one can.
    static constexpr std::size_t huge = std::size_t{1} << 21U;

    /// @throws Error ENOMEM
    explicit Pages(std::size_t size);
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    [[nodiscard]] void* get() const noexcept { return pages_; }
    /// Has the first @p size bytes in huge pages, where there are any: they take memory at once.
    void make_huge(std::size_t size) noexcept;

  private:
    std::size_t size_;
    void* pages_;
};

} // namespace rdmabuf::detail
