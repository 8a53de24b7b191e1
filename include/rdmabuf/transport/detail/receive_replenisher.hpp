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
        for (std::size_t i = 0; i < capacity; ++i) {
            requests_[i] = {.wr_id = 0,
                            .next = i + 1 < capacity ? &requests_[i + 1] : nullptr,
                            .sg_list = nullptr,
                            .num_sge = 0};
        }
    }
    // The object cannot be copied or moved, because its work requests are linked by pointers.
    ReceiveReplenisher(const ReceiveReplenisher&) = delete;
    ReceiveReplenisher& operator=(const ReceiveReplenisher&) = delete;
    ~ReceiveReplenisher() = default;

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] bool full() const noexcept { return size_ == capacity; }

    /// Adds a receive with a buffer to the batch that post() posts. The batch must not be full.
    void add(std::uint64_t wr_id, const ibv_sge& buffer) noexcept {
        buffers_[size_] = buffer;
        requests_[size_].sg_list = &buffers_[size_];
        requests_[size_].num_sge = 1;
        requests_[size_++].wr_id = wr_id;
    }
    /// Adds a receive without a buffer, for RDMA writes with immediate data.
    void add(std::uint64_t wr_id) noexcept {
        requests_[size_].num_sge = 0;
        requests_[size_++].wr_id = wr_id;
    }
    /// Posts all collected receives. The object is then empty.
    /// @return 0, or the errno value of ibv_post_srq_recv(3)
    [[nodiscard]] int post(ibv_srq* srq) noexcept {
        if (size_ == 0) {
            return 0;
        }
        ibv_recv_wr& last = requests_[size_ - 1];
        ibv_recv_wr* const next = last.next;
        last.next = nullptr;
        ibv_recv_wr* failed = nullptr;
        const int error = ibv_post_srq_recv(srq, requests_.data(), &failed);
        last.next = next;
        size_ = 0;
        return error;
    }

  private:
    std::size_t size_ = 0;
    std::array<ibv_recv_wr, capacity> requests_{};
    std::array<ibv_sge, capacity> buffers_{};
};

} // namespace rdmabuf::transport::detail
