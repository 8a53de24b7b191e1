// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace softverbs::fabric {

/// Owns a memory mapping. The destructor unmaps it.
class Mapping {
  public:
    Mapping() noexcept = default;
    /// Maps the first @p size bytes of @p fd with MAP_SHARED. If mmap(2) fails, the object is empty
    /// and errno is set.
    Mapping(int fd, std::size_t size, int protection) noexcept
        : address_(::mmap(nullptr, size, protection, MAP_SHARED, fd, 0)), size_(size) {
        if (address_ == MAP_FAILED) {
            address_ = nullptr;
            size_ = 0;
        }
    }
    Mapping(Mapping&& other) noexcept
        : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(address_, other.address_);
        std::swap(size_, other.size_);
        return *this;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (address_ != nullptr) {
            ::munmap(address_, size_);
        }
    }

    explicit operator bool() const noexcept { return address_ != nullptr; }
    [[nodiscard]] std::byte* bytes() const noexcept { return static_cast<std::byte*>(address_); }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

  private:
    void* address_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace softverbs::fabric
