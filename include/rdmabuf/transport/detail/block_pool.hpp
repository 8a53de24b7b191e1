// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace rdmabuf::transport::detail {

/// Allocates memory blocks for messages of different lengths. The pool keeps freed blocks for later
/// messages, so that operator new is rarely called.
class BlockPool {
  public:
    /// @param limit  maximum total size of the unused blocks that the pool keeps, in bytes
    explicit BlockPool(std::size_t limit) noexcept : limit_(limit) {}
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;
    ~BlockPool() {
        for (Unused*& list : unused_) {
            while (list != nullptr) {
                Unused* const block = list;
                list = block->next;
                ::operator delete(static_cast<void*>(block));
            }
        }
    }

    /// Allocates memory for an object of @p size bytes, with the alignment of operator new.
    /// @return the memory; nullptr if memory is exhausted
    [[nodiscard]] void* take(std::size_t size) noexcept {
        const std::size_t order = order_of(size);
        if (order >= orders) {
            return ::operator new(size, std::nothrow);
        }
        if (Unused* const block = unused_[order]) {
            unused_[order] = block->next;
            kept_ -= std::size_t{1} << order;
            return block;
        }
        return ::operator new (std::size_t{1} << order, std::nothrow);
    }
    /// Returns to the pool a block that take() returned.
    /// @param size  the argument of the call of take()
    void give_back(void* memory, std::size_t size) noexcept {
        const std::size_t order = order_of(size);
        if (order >= orders || kept_ + (std::size_t{1} << order) > limit_) {
            ::operator delete(memory);
            return;
        }
        unused_[order] = ::new (memory) Unused{unused_[order]};
        kept_ += std::size_t{1} << order;
    }
    /// Returns the total size of the unused blocks in bytes.
    [[nodiscard]] std::size_t kept() const noexcept { return kept_; }

  private:
    struct Unused {
        Unused* next;
    };
    static constexpr std::size_t min_order = 7;
    static constexpr std::size_t orders = 22;

    /// Returns the order of a block that has room for @p size bytes. The block has 2^order bytes.
    [[nodiscard]] static std::size_t order_of(std::size_t size) noexcept {
        return std::max<std::size_t>(min_order, std::bit_width(size - 1));
    }

    std::size_t limit_;
    std::size_t kept_ = 0;
    /// The lists of unused blocks. The blocks in list i have 2^i bytes.
    std::array<Unused*, orders> unused_{};
};

} // namespace rdmabuf::transport::detail
