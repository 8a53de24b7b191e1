// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmabuf::transport::detail {

/// The receives of a shared receive queue, with one prepared work request for each of them.
/// Collects the receives that must be posted again, and posts many of them in one call.
class ReceiveReplenisher {
  public:
    static constexpr std::uint32_t capacity = 16;

    struct Receive {
        ibv_recv_wr request{};
        ibv_sge buffer{};

        /// Returns the address of the receive buffer; nullptr if the receive has none.
        [[nodiscard]] std::byte* bytes() const noexcept {
            return reinterpret_cast<std::byte*>(buffer.addr);
        }
    };

    ReceiveReplenisher() noexcept = default;
    // The object cannot be copied or moved, because last_ can point to before_first_.
    ReceiveReplenisher(const ReceiveReplenisher&) = delete;
    ReceiveReplenisher& operator=(const ReceiveReplenisher&) = delete;
    ~ReceiveReplenisher() = default;

    /// Creates @p count receives without buffers. Until set_buffer(), only RDMA writes with
    /// immediate data can use them.
    /// @throws std::bad_alloc
    void create(std::uint32_t count) {
        receives_ = std::vector<Receive>(count);
        end_ = count * sizeof(Receive);
        for (std::uint32_t i = 0; i < count; ++i) {
            receives_[i].request.wr_id = i * sizeof(Receive);
        }
    }
    void set_buffer(std::uint32_t i, const ibv_sge& buffer) noexcept {
        receives_[i].buffer = buffer;
        receives_[i].request.sg_list = &receives_[i].buffer;
        receives_[i].request.num_sge = 1;
    }

    /// Returns true if @p wr_id belongs to one of these receives. Such a wr_id is the offset of the
    /// receive in the array of all receives, in bytes. The wr_id of any other work request is
    /// larger: see WorkId.
    [[nodiscard]] bool contains(std::uint64_t wr_id) const noexcept { return wr_id < end_; }
    /// Returns the receive with this wr_id. contains() must be true.
    [[nodiscard]] Receive& find(std::uint64_t wr_id) noexcept {
        return *reinterpret_cast<Receive*>(reinterpret_cast<std::byte*>(receives_.data()) + wr_id);
    }
    [[nodiscard]] Receive& operator[](std::uint32_t i) noexcept { return receives_[i]; }
    [[nodiscard]] static std::uint32_t number_of(std::uint64_t wr_id) noexcept {
        return static_cast<std::uint32_t>(wr_id / sizeof(Receive));
    }

    [[nodiscard]] bool empty() const noexcept { return left_ == capacity; }
    [[nodiscard]] bool full() const noexcept { return left_ == 0; }

    /// Adds a receive to the batch that post() posts. The batch must not be full.
    void add(Receive& receive) noexcept {
        last_->next = &receive.request;
        last_ = &receive.request;
        --left_;
    }
    /// Posts all collected receives. The batch is then empty.
    /// @return 0, or the errno value of ibv_post_srq_recv(3)
    [[nodiscard]] int post(ibv_srq* srq) noexcept {
        if (empty()) {
            return 0;
        }
        last_->next = nullptr;
        last_ = &before_first_;
        left_ = capacity;
        ibv_recv_wr* failed = nullptr;
        return ibv_post_srq_recv(srq, before_first_.next, &failed);
    }

  private:
    std::vector<Receive> receives_;
    /// The size in bytes of the array of all receives; see contains().
    std::uint64_t end_ = 0;
    /// A placeholder before the batch, which is never posted itself. Its `next` is the first
    /// receive.
    ibv_recv_wr before_first_{};
    ibv_recv_wr* last_ = &before_first_;
    /// The number of receives that can still be added to the batch.
    std::uint32_t left_ = capacity;
};

} // namespace rdmabuf::transport::detail
