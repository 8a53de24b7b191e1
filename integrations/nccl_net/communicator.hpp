// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/transport.hpp>

#include "memory.hpp"
#include "nccl_net_abi.hpp"
#include "nic.hpp"
#include "shared_endpoint.hpp"

namespace nccl_net {

class Communicator;

/// A request of NCCL: one send, a grouped receive of up to max_receives messages, or a flush of up
/// to max_receives buffers. A communicator has a fixed number of requests, in Communicator::pool_.
struct Request {
    /// One message or flush of the request. The `context` of the corresponding request of the
    /// transport is a pointer to this object.
    struct Part {
        Request* request = nullptr;
        /// Keeps the memory registered until the part has completed.
        MemoryHandle memory = nullptr;
        /// True if the part is a flush that is not posted yet because the channel had no room.
        bool waiting = false;
        void* address = nullptr;
        std::size_t size = 0;
        int error = 0;
    };

    Communicator* owner = nullptr;
    Request* next_free = nullptr;
    std::size_t count = 0;
    /// The number of parts that have not completed. Any thread that polls the endpoint may decrease
    /// it.
    std::atomic<std::uint32_t> unfinished{0};
    std::array<Part, max_receives> parts;
};

/// A sendComm or recvComm of NCCL. Only one thread at a time may send, receive, flush or test;
/// another thread may register memory at the same time. Memory is allocated only by the
/// constructor, for the growth of the endpoint's pools, and for error texts.
class Communicator {
  public:
    /// @param endpoint  the endpoint that created @p channel
    Communicator(const Nic& nic, std::shared_ptr<SharedEndpoint> endpoint,
                 rdmabuf::transport::Channel channel) noexcept;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    /// Closes the channel. If all requests have completed, first waits, for at most
    /// EndpointOptions::linger, until the peer's device has received all messages. If not, the
    /// NCCL communicator is aborted, and its peer may be unreachable; see also
    /// SharedEndpoint::lingers. Other threads can use the endpoint meanwhile.
    ~Communicator();

    [[nodiscard]] const Nic& nic() const noexcept { return nic_; }
    [[nodiscard]] const std::shared_ptr<SharedEndpoint>& endpoint() const noexcept {
        return endpoint_;
    }

    // If the channel has no room, send() and receive() return success and do not set `request`. The
    // caller initializes it to nullptr, for which NCCL calls the function again.

    abi::Result send(const MemoryHandle& memory, void* data, std::size_t size, int tag,
                     Request*& request) noexcept;
    /// Posts a grouped receive. The messages can arrive in any order. Each message is written to
    /// the first free buffer that has the message's tag.
    template <class Size>
    abi::Result receive(std::size_t count, void** data, const Size* sizes, const int* tags,
                        void** memories, Request*& request) noexcept;
    /// Makes received data visible to the GPU. Success with a null @p request means that no flush
    /// is necessary. If no request is free, the result is system_error.
    abi::Result flush(std::size_t count, void** data, const int* sizes, void** memories,
                      Request*& request) noexcept;

    /// Makes progress on a request. If @p done becomes true, the request is free for another
    /// operation.
    /// @param sizes  the array to which the size of each message is written, in bytes; may be
    ///               nullptr
    abi::Result test(Request& request, bool& done, int* sizes) noexcept;

  private:
    [[nodiscard]] Request* take() noexcept;
    void give_back(Request& request) noexcept;
    /// Adds a part to a request. @return the new part
    static Request::Part& add_part(Request& request, const MemoryHandle& memory,
                                   std::size_t size) noexcept;
    /// Removes the last part of a request, after the transport has failed to start it.
    static void drop_part(Request& request) noexcept;
    /// Tries to post a flush. If the channel has no room, Part::waiting stays set, and test() tries
    /// again. The caller must hold the lock of the endpoint.
    [[nodiscard]] abi::Result start_flush(Request::Part& part) noexcept;
    /// Logs an error, but only the first one of this communicator. The caller must hold the lock of
    /// the endpoint.
    /// @return the result for NCCL
    [[nodiscard]] abi::Result failed(const char* what, std::size_t size, int error) noexcept;

    /// NCCL has up to max_requests sends or receives in flight for each of the max_receives
    /// messages of a group. The factor 2 is for the flush that follows each receive.
    static constexpr std::size_t pool_size = 2 * abi::max_requests * max_receives;

    const Nic& nic_;
    std::shared_ptr<SharedEndpoint> endpoint_;
    rdmabuf::transport::Channel channel_;
    std::array<Request, pool_size> pool_;
    Request* free_ = nullptr;
    bool failure_logged_ = false;
};

} // namespace nccl_net
