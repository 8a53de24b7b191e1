// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

#include <rdmabuf/transport/detail/bounce_pool.hpp>

namespace rdmabuf::transport::detail {

BouncePool::BouncePool(std::uint32_t eager_limit, std::uint32_t receive_buffers,
                       std::uint32_t send_buffers)
    : receive_size_(round_up(
          std::max<std::size_t>(sizeof(Header) + eager_limit,
                                std::max(max_control_message, sizeof(Header) + max_notification)))),
      receive_buffers_(receive_buffers),
      size_(2 * line + receive_size_ * (receive_buffers + copy_buffers) + send_size * send_buffers),
      bytes_(static_cast<std::byte*>(::operator new (size_, std::align_val_t{alignment_of(size_)})),
             Free{alignment_of(size_)}),
      uses_(send_buffers) {
    if (size_ >= huge_page) {
        // Huge pages are an optimization: if the kernel has none, normal pages are used.
        static_cast<void>(::madvise(bytes_.get(), size_ / huge_page * huge_page, MADV_HUGEPAGE));
    }
    std::fill_n(bytes_.get(), size_, std::byte{});
    first_receive_ = bytes_.get() + 2 * line;
    for (std::uint32_t i = send_buffers; i-- > 0;) {
        give_back(i);
    }
    for (std::uint32_t i = 0; i < copy_buffers; ++i) {
        free_copies_[copies_left_++] = receive_buffers + i;
    }
}

bool BouncePool::give_back_copy_buffer(std::uint32_t i) noexcept {
    if (i < receive_buffers_) {
        return false;
    }
    free_copies_[copies_left_++] = i;
    return true;
}

std::byte* BouncePool::send_buffer(std::uint32_t i) const noexcept {
    return data() + 2 * line + receive_size_ * (receive_buffers_ + copy_buffers) + send_size * i;
}

std::uint32_t BouncePool::take() noexcept {
    const std::uint32_t i = free_;
    free_ = uses_[i].next;
    --unused_;
    return i;
}

void BouncePool::give_back(std::uint32_t i) noexcept {
    uses_[i].next = free_;
    free_ = i;
    ++unused_;
}

} // namespace rdmabuf::transport::detail
