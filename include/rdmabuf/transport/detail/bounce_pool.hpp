// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// The bounce buffers of an endpoint, for all its channels. Messages arrive in receive buffers.
/// Short messages that do not fit into inline data are copied to a send buffer, so that the program
/// can reuse its own memory at once. The pool also contains a few bytes whose contents are not
/// used: the target of keepalive writes, and the destination of fence reads and flush reads.
class RDMABUF_EXPORT BouncePool {
  public:
    static constexpr std::size_t line = 64;
    /// Maximum length in bytes of a message that is copied to a send buffer.
    static constexpr std::uint32_t copy_limit = max_copied_message;
    static constexpr std::uint32_t none = 0xffffffff;
    /// The number of copy buffers. They hold unexpected messages while a NIC copies these messages
    /// to GPU memory.
    static constexpr std::uint32_t copy_buffers = 16;

    /// @throws std::bad_alloc
    BouncePool(std::uint32_t eager_limit, std::uint32_t receive_buffers,
               std::uint32_t send_buffers);

    [[nodiscard]] std::byte* data() const noexcept { return bytes_.get(); }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Returns the address of the memory that the keepalive writes, fences and fence reads of peers
    /// access. It has BouncePool::line bytes, whose contents are not used.
    [[nodiscard]] std::byte* probe_line() const noexcept { return data(); }
    /// Returns the address of the memory to which the flush reads and fence reads of this end write
    /// their data. It has BouncePool::line bytes, whose contents are not used.
    [[nodiscard]] std::byte* scratch_line() const noexcept { return data() + line; }

    [[nodiscard]] std::uint32_t receive_buffers() const noexcept { return receive_buffers_; }
    [[nodiscard]] std::uint32_t receive_size() const noexcept {
        return static_cast<std::uint32_t>(receive_size_);
    }
    [[nodiscard]] std::byte* receive_buffer(std::uint32_t i) const noexcept {
        return first_receive_ + receive_size_ * i;
    }
    /// Takes a copy buffer, which has the size of a receive buffer.
    /// @return an index for receive_buffer(); `none` if all copy buffers are in use
    [[nodiscard]] std::uint32_t take_copy_buffer() noexcept {
        return copies_left_ == 0 ? none : free_copies_[--copies_left_];
    }
    /// Frees buffer @p i if it is a copy buffer.
    /// @return false if buffer @p i is a receive buffer; the caller must post this buffer again
    [[nodiscard]] bool give_back_copy_buffer(std::uint32_t i) noexcept;
    [[nodiscard]] std::byte* send_buffer(std::uint32_t i) const noexcept;

    [[nodiscard]] std::uint32_t send_buffers() const noexcept {
        return static_cast<std::uint32_t>(uses_.size());
    }
    /// Returns the number of unused send buffers.
    [[nodiscard]] std::uint32_t unused() const noexcept { return unused_; }
    /// Takes a send buffer. At least one must be unused; see HeldBuffers::may_hold().
    [[nodiscard]] std::uint32_t take() noexcept;
    void give_back(std::uint32_t i) noexcept;

    /// The state of a send buffer.
    struct Use {
        /// The index of the next send buffer in a list: the list of unused buffers, or HeldBuffers.
        std::uint32_t next = none;
        /// The sequence number of the work request that reads the send buffer; see
        /// SendQueue::next().
        std::uint32_t sequence = 0;
    };
    [[nodiscard]] Use& use(std::uint32_t i) noexcept { return uses_[i]; }

    static constexpr std::size_t send_size = 1088;
    static_assert(send_size % line == 0 && send_size >= sizeof(Header) + copy_limit &&
                  send_size >= max_control_message &&
                  send_size >= sizeof(Header) + max_notification);

  private:
    static constexpr std::size_t huge_page = std::size_t{2} << 20U;
    static constexpr std::size_t small_page = 4096;

    [[nodiscard]] static constexpr std::size_t alignment_of(std::size_t size) noexcept {
        return size >= huge_page ? huge_page : small_page;
    }
    [[nodiscard]] static constexpr std::size_t round_up(std::size_t size) noexcept {
        return (size + line - 1) / line * line;
    }

    struct Free {
        std::size_t alignment = small_page;
        void operator()(std::byte* bytes) const noexcept {
            ::operator delete (bytes, std::align_val_t{alignment});
        }
    };

    std::size_t receive_size_;
    std::uint32_t receive_buffers_;
    std::size_t size_;
    std::unique_ptr<std::byte, Free> bytes_;
    std::byte* first_receive_ = nullptr;
    std::vector<Use> uses_;
    std::uint32_t free_ = none;
    std::uint32_t unused_ = 0;
    std::array<std::uint32_t, copy_buffers> free_copies_{};
    std::uint32_t copies_left_ = 0;
};

} // namespace rdmabuf::transport::detail
