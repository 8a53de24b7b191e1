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

namespace nccl_net {

class Communicator;

/// A request of NCCL: one send, a grouped receive of up to max_receives messages, or one flush. A
/// communicator has a fixed number of requests, in Communicator::pool_.
struct Request {
    /// One message, or a flush. The `context` of the transport request points to this object.
    struct Part {
        Request* request = nullptr;
        /// Keeps the memory registered until the part has completed.
        MemoryHandle memory = nullptr;
        std::size_t size = 0;
    };

    Communicator* owner = nullptr;
    Request* next_free = nullptr;
    std::size_t count = 0;
    /// The errno value of the first part that failed; 0 if none has failed.
    int error = 0;
    /// The number of parts that have not completed. Any thread that polls the endpoint may decrease
    /// this number.
    std::atomic<std::uint32_t> unfinished{0};
    std::array<Part, max_receives> parts;
};

/// A sendComm or recvComm of NCCL. Only one thread at a time may send, receive, flush or test;
/// another thread may register memory at the same time. After the constructor, memory is allocated
/// only to grow the endpoint's pools, and for error texts.
class Communicator {
  public:
    /// @param endpoint  the endpoint that created @p channel
    Communicator(const Nic& nic, std::shared_ptr<SharedEndpoint> endpoint,
                 rdmabuf::transport::Channel channel) noexcept;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    /// Closes the channel. If all requests have completed, and SharedEndpoint::lingers is true,
    /// first waits, for at most EndpointOptions::linger, until the peer's device has received all
    /// messages. Other threads can use the endpoint during the wait. If a request has not
    /// completed, the destructor does not wait for the peer: NCCL is then aborting the NCCL
    /// communicator, and the peer may be unreachable.
    ~Communicator();

    [[nodiscard]] const Nic& nic() const noexcept { return nic_; }
    [[nodiscard]] const std::shared_ptr<SharedEndpoint>& endpoint() const noexcept {
        return endpoint_;
    }

    // send(), receive() and flush() set `request` to a Request. If send() or receive() cannot start
    // yet, the function returns success and does not set `request`, and NCCL calls it again later.
    // Therefore the caller must initialise `request` to nullptr.

    /// Sends a message as soon as the peer has advertised a receive with the tag @p tag, so that
    /// the data is written directly to the receive buffer. A message without data does not wait.
    /// Sends at most as many bytes as the advertised buffer has.
    abi::Result send(const MemoryHandle& memory, void* data, std::size_t size, int tag,
                     void*& request) noexcept;
    /// Posts a grouped receive, as soon as all its receives can be advertised. The messages can
    /// arrive in any order. Each message is written to the first free buffer that has the message's
    /// tag.
    abi::Result receive(std::size_t count, void** data, const std::size_t* sizes, const int* tags,
                        void** memories, void*& request) noexcept;
    /// Makes received data visible to the GPU, by flushing the last non-empty buffer in GPU memory.
    /// Success with a null @p request means that no flush is necessary.
    abi::Result flush(std::size_t count, void** data, const int* sizes, void** memories,
                      void*& request) noexcept;

    /// Makes progress on a request. If @p done becomes 1, the request is free for another
    /// operation.
    /// @param sizes  the array to which the size of each message is written, in bytes; may be
    ///               nullptr
    abi::Result test(Request& request, int& done, int* sizes) noexcept;

    /// NCCL has up to abi::max_requests grouped receives in flight, and a flush follows each. If a
    /// send finds no free Request, NCCL calls send() again later.
    static constexpr std::size_t pool_size = 2 * abi::max_requests;

  private:
    [[nodiscard]] Request* take() noexcept;
    void give_back(Request& request) noexcept;
    /// Starts one part of @p request by a call of @p start, which takes the part and returns an
    /// error code. If the call fails, the part is removed from the request.
    template <class Start>
    [[nodiscard]] std::error_code add_part(Request& request, const MemoryHandle& memory,
                                           std::size_t size, const Start& start) noexcept;
    /// Logs an error, but only the first one of this communicator. The caller must hold the lock of
    /// the endpoint.
    /// @return the result for NCCL
    [[nodiscard]] abi::Result failed(const char* what, std::size_t size, int error) noexcept;

    const Nic& nic_;
    std::shared_ptr<SharedEndpoint> endpoint_;
    rdmabuf::transport::Channel channel_;
    std::array<Request, pool_size> pool_;
    Request* free_ = nullptr;
    bool failure_logged_ = false;
};

} // namespace nccl_net
