// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace rdmabuf::transport::detail {

/// Memory for messages of different lengths. Unused blocks are kept for later messages, so that
/// messages allocate no memory in the steady state.
class BlockPool {
  public:
    /// @param limit  maximum number of bytes of unused blocks
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

    /// Takes memory for an object of @p size bytes, with the alignment of operator new.
    /// @return nullptr if memory is exhausted
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
    /// Gives back memory of take(). @param size  the argument of take()
    void give_back(void* memory, std::size_t size) noexcept {
        const std::size_t order = order_of(size);
        if (order >= orders || kept_ + (std::size_t{1} << order) > limit_) {
            ::operator delete(memory);
            return;
        }
        unused_[order] = ::new (memory) Unused{unused_[order]};
        kept_ += std::size_t{1} << order;
    }
    /// Returns the number of bytes of unused blocks.
    [[nodiscard]] std::size_t kept() const noexcept { return kept_; }

  private:
    struct Unused {
        Unused* next;
    };
    static constexpr std::size_t min_order = 7;
    static constexpr std::size_t orders = 22;

    /// Returns the binary logarithm of the size of a block for @p size bytes.
    [[nodiscard]] static std::size_t order_of(std::size_t size) noexcept {
        return std::max<std::size_t>(min_order, std::bit_width(size - 1));
    }

    std::size_t limit_;
    std::size_t kept_ = 0;
    /// The unused blocks of each size: list i has blocks of 2^i bytes.
    std::array<Unused*, orders> unused_{};
};

} // namespace rdmabuf::transport::detail
