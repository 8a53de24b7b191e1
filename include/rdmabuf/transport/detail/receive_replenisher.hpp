// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace rdmabuf::transport::detail {

/// Collects the receives that must be posted again to a shared receive queue, and posts many of
/// them in one call.
class ReceiveReplenisher {
  public:
    static constexpr std::size_t capacity = 16;

    ReceiveReplenisher() noexcept {
        for (std::size_t i = 0; i + 1 < capacity; ++i) {
            receives_[i].request.next = &receives_[i + 1].request;
        }
    }
    // The object cannot be copied or moved, because its work requests are linked by pointers.
    ReceiveReplenisher(const ReceiveReplenisher&) = delete;
    ReceiveReplenisher& operator=(const ReceiveReplenisher&) = delete;
    ~ReceiveReplenisher() = default;

    /// Makes all receives that are added later use a buffer. Without this call, the receives have
    /// no buffer, and only RDMA writes with immediate data can use them.
    /// @param length  the length of each buffer in bytes
    void use_buffers(std::uint32_t length, std::uint32_t lkey) noexcept {
        for (Receive& receive : receives_) {
            receive.buffer = {.addr = 0, .length = length, .lkey = lkey};
            receive.request.sg_list = &receive.buffer;
            receive.request.num_sge = 1;
        }
    }

    [[nodiscard]] bool empty() const noexcept { return next_ == receives_.data(); }
    [[nodiscard]] bool full() const noexcept { return next_ == receives_.data() + capacity; }

    /// Adds a receive to the batch that post() posts. The batch must not be full.
    /// @param buffer  the address of the buffer; ignored without use_buffers()
    void add(std::uint64_t wr_id, const std::byte* buffer) noexcept {
        next_->request.wr_id = wr_id;
        next_->buffer.addr = reinterpret_cast<std::uintptr_t>(buffer);
        ++next_;
    }
    /// Posts all collected receives. The object is then empty.
    /// @return 0, or the errno value of ibv_post_srq_recv(3)
    [[nodiscard]] int post(ibv_srq* srq) noexcept {
        if (empty()) {
            return 0;
        }
        ibv_recv_wr& last = (next_ - 1)->request;
        ibv_recv_wr* const next = last.next;
        last.next = nullptr;
        ibv_recv_wr* failed = nullptr;
        const int error = ibv_post_srq_recv(srq, &receives_[0].request, &failed);
        last.next = next;
        next_ = receives_.data();
        return error;
    }

  private:
    struct Receive {
        ibv_recv_wr request{};
        ibv_sge buffer{};
    };

    std::array<Receive, capacity> receives_{};
    Receive* next_ = receives_.data();
};

} // namespace rdmabuf::transport::detail
