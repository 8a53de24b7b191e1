// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/transport.hpp>

#include "nccl_net_abi.hpp"
#include "nic.hpp"

namespace nccl_net {

class Communicator;

/// What NCCL calls a request: a message to send, up to max_receives to receive, or the memory of as
/// many to flush. One of a fixed number that a communicator has.
struct Request {
    /// A message, or memory to flush.
    struct Part {
        rdmabuf::transport::Request request;
        /// flush: not begun yet, where the channel had no room.
        const rdmabuf::transport::Memory* waiting = nullptr;
        void* address = nullptr;
        std::size_t size = 0;
        bool done = false;
    };

    Communicator* owner = nullptr;
    Request* next_free = nullptr;
    std::size_t count = 0;
    std::array<Part, max_receives> parts;
};

/// What NCCL calls a sendComm or a recvComm. One thread at a time sends, receives, flushes and
/// tests; another may register memory meanwhile. Allocates nothing once it is made, but for what it
/// says when something fails.
class Communicator {
  public:
    /// @param endpoint  what the channel came of
    Communicator(const Nic& nic, std::shared_ptr<rdmabuf::transport::Endpoint> endpoint,
                 rdmabuf::transport::Channel channel) noexcept;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    ~Communicator() = default;

    [[nodiscard]] const Nic& nic() const noexcept { return nic_; }
    [[nodiscard]] const rdmabuf::transport::Endpoint& endpoint() const noexcept {
        return *endpoint_;
    }

    // Each begins something and fills in the request, nullptr where there is no room for it now.

    abi::Result send(const rdmabuf::transport::Memory& memory, void* data, std::size_t size,
                     int tag, Request*& request) noexcept;
    /// Receives messages that may come in any order, each into the first of the buffers of its tag.
    template <class Size>
    abi::Result receive(std::size_t count, void** data, const Size* sizes, const int* tags,
                        void** memories, Request*& request) noexcept;
    /// nullptr also where there is nothing to flush.
    abi::Result flush(std::size_t count, void** data, const int* sizes, void** memories,
                      Request*& request) noexcept;

    /// @param sizes  nullptr, or room for the size of each message
    abi::Result test(Request& request, bool& done, int* sizes) noexcept;

    /// Waits for what was sent to be taken by the peer.
    void close() noexcept;

  private:
    [[nodiscard]] Request* take() noexcept;
    void give_back(Request& request) noexcept;
    [[nodiscard]] abi::Result begin_flush(Request::Part& part) noexcept;
    /// Logs it, once.
    [[nodiscard]] abi::Result failed(const char* what, std::size_t size, int error) noexcept;

    /// As many as NCCL has under way: twice, as flushes follow receives.
    static constexpr std::size_t pool_size = 2 * abi::max_requests * max_receives;

    const Nic& nic_;
    std::shared_ptr<rdmabuf::transport::Endpoint> endpoint_;
    rdmabuf::transport::Channel channel_;
    std::array<Request, pool_size> pool_;
    Request* free_ = nullptr;
    bool failure_told_ = false;
};

} // namespace nccl_net
