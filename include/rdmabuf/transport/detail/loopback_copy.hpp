// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/request_state.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>

namespace rdmabuf::transport::detail {

/// Copies messages to GPU memory and flushes GPU memory, by the loopback queue pairs of the
/// endpoint. A flush reads one byte of the memory through each NIC. When this read has completed,
/// data that the NIC wrote earlier is visible to the GPU.
class RDMABUF_EXPORT LoopbackCopy {
  public:
    explicit LoopbackCopy(SharedState& shared) noexcept : shared_(shared) {}

    /// The maximum number of registered regions that a message may touch. Endpoint::use_regions()
    /// rejects regions of GPU memory in which an eager message could touch more.
    static constexpr std::uint32_t max_pieces = 8;

    /// Copies a received message to the memory of its receive request. A loopback queue pair sends
    /// the data to itself, because the completion of a receive guarantees that its data is in
    /// memory. The completion of an RDMA write does not guarantee this.
    /// @param data  the received message, in a bounce buffer
    /// @return 0; EAGAIN if the send queue is full or the queue pair is being replaced: the copy
    ///         must be started again; another errno value if the copy is impossible
    [[nodiscard]] int copy(ReceiveRequest& receive, const std::byte* data) noexcept;

    /// Finds out which ports that were down are active again. Must be called once for each flush,
    /// after the data has arrived: SharedRail::port_down can be out of date, and a NIC whose port
    /// is active again may have written a part of the data.
    /// @param rails  the number of NICs that may have written to the memory
    void query_ports(std::size_t rails) noexcept;
    /// Posts a read of one byte of the request's memory through each NIC. Any NIC but the first is
    /// skipped if it has failed or its port is not active: it writes no more, and cannot read.
    /// @param rails  the number of NICs that may have written to the memory
    /// @return 0; EAGAIN if a send queue is full or a queue pair is being replaced; another errno
    ///         value if the flush is impossible
    [[nodiscard]] int flush(RequestState& request, std::size_t rails) noexcept;

    /// Posts a signaled work request on a loopback queue pair.
    /// @param request  the request that waits for the completion, or nullptr
    /// @return 0; EAGAIN if the send queue is full; another errno value of ibv_post_send(3)
    [[nodiscard]] static int post(SharedRail& rail, ibv_send_wr& work,
                                  RequestState* request) noexcept;

  private:
    /// Returns 0 if the loopback queue pair of a device can be used; EAGAIN if it can be used later
    /// (see also SharedRail::suspects); EIO if the device has failed; SharedRail::loopback_error if
    /// this is not 0 and the device has no loopback queue pair.
    [[nodiscard]] static int check(const SharedRail& rail) noexcept;
    /// Updates Loopback::owner before work requests of @p request are posted.
    static void claim(Loopback& loopback, const RequestState& request) noexcept;
    /// Posts a receive with the buffer @p to, and a send of the data in @p from, on the same
    /// loopback queue pair.
    [[nodiscard]] static int post_pair(SharedRail& rail, ibv_sge& to, ibv_sge& from,
                                       ReceiveRequest& request) noexcept;

    SharedState& shared_;
};

} // namespace rdmabuf::transport::detail
