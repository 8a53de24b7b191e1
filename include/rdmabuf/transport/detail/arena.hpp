// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <rdmabuf/transport/detail/protocol.hpp>

namespace rdmabuf::transport::detail {

/// The bounce buffers of a channel, registered with each of its devices: the receive buffers and
/// the send buffers. The arena also contains a scratch line: memory for keepalive writes and flush
/// reads. The contents of the scratch line are not used.
class Arena {
  public:
    static constexpr std::size_t line = 64;

    /// Maximum length in bytes of a message that is copied to a send buffer, so that the program
    /// can reuse its own memory at once.
    static constexpr std::uint32_t copy_limit = 1024;
    static constexpr std::uint32_t send_slots = 64;

    Arena(std::uint32_t eager_limit, std::uint32_t receive_slots)
        : receive_slots_(receive_slots),
          receive_stride_(
              round_up(sizeof(Header) + std::max<std::size_t>(eager_limit, grant_room))),
          size_(line + receive_stride_ * receive_slots + send_stride * send_slots),
          bytes_(static_cast<std::byte*>(::operator new(size_, alignment))) {
        std::fill_n(bytes_.get(), size_, std::byte{});
    }

    [[nodiscard]] std::byte* data() const noexcept { return bytes_.get(); }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Returns the address of the scratch line, the target of keepalive writes and flush reads. The
    /// contents of the scratch line are not used.
    [[nodiscard]] std::byte* scratch() const noexcept { return data(); }
    [[nodiscard]] std::byte* receive_slot(std::uint32_t i) const noexcept {
        return data() + line + receive_stride_ * i;
    }
    [[nodiscard]] std::byte* send_slot(std::uint32_t i) const noexcept {
        return data() + line + receive_stride_ * receive_slots_ + send_stride * i;
    }
    [[nodiscard]] std::uint32_t receive_slots() const noexcept { return receive_slots_; }
    [[nodiscard]] std::uint32_t receive_size() const noexcept {
        return static_cast<std::uint32_t>(receive_stride_);
    }

  private:
    static constexpr std::align_val_t alignment{4096};
    [[nodiscard]] static constexpr std::size_t round_up(std::size_t size) noexcept {
        return (size + line - 1) / line * line;
    }
    static constexpr std::size_t send_stride = 1088; // sizeof(Header) + copy_limit, aligned
    static_assert(send_stride % line == 0 && send_stride >= sizeof(Header) + copy_limit &&
                  copy_limit >= grant_room);

    struct Free {
        void operator()(std::byte* bytes) const noexcept { ::operator delete(bytes, alignment); }
    };

    std::uint32_t receive_slots_;
    std::size_t receive_stride_;
    std::size_t size_;
    std::unique_ptr<std::byte, Free> bytes_;
};

} // namespace rdmabuf::transport::detail
