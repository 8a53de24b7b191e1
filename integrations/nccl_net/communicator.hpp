// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/transport.hpp>

#include "nccl_net_abi.hpp"
#include "nic.hpp"

/// The functions of a communicator, which is a sendComm or recvComm of NCCL. Only one thread at a
/// time may send, receive, flush or test; another thread may register memory at the same time.
/// After make_communicator(), memory is allocated only to grow the endpoint's pools, and for error
/// texts.
namespace nccl_net {

/// @param endpoint  the endpoint that created @p channel
/// @throws std::bad_alloc
[[nodiscard]] void* make_communicator(const Nic& nic, std::shared_ptr<SharedEndpoint> endpoint,
                                      rdmabuf::transport::Channel channel);
/// Closes the channel. If all requests have completed, and SharedEndpoint::lingers is true, first
/// waits, for at most EndpointOptions::linger, until the peer's device has received all messages.
/// Other threads can use the endpoint during the wait. If a request has not completed, the function
/// does not wait for the peer: NCCL is then aborting the NCCL communicator, and the peer may be
/// unreachable.
abi::Result close_communicator(void* comm) noexcept;
/// Returns true if NCCL has closed all communicators.
[[nodiscard]] bool are_communicators_closed() noexcept;

/// Registers memory by its address. GPU memory is registered as a dma-buf that this library
/// exports, or by a peer memory module (nvidia_peermem). @p kind is ignored, because NCCL passes
/// pinned host memory as GPU memory, too. The library detects the type of the memory itself.
abi::Result register_memory(void* comm, void* data, std::size_t size, int kind,
                            void** memory) noexcept;
/// Registers a range of a dma-buf that NCCL has exported.
abi::Result register_dmabuf(void* comm, void* data, std::size_t size, int kind,
                            std::uint64_t offset, int fd, void** memory) noexcept;
abi::Result deregister_memory(void* comm, void* memory) noexcept;

// isend(), irecv() and iflush() set `*request`. If isend() or irecv() cannot start yet, it is
// nullptr, and NCCL calls the function again later.

/// Sends at most as many bytes as the advertised buffer has.
abi::Result isend(void* comm, void* data, std::size_t size, int tag, void* memory,
                  void** request) noexcept;
/// Posts a grouped receive, as soon as all its receives can be advertised. The messages can arrive
/// in any order. Each message is written to the first free buffer that has the message's tag.
abi::Result irecv(void* comm, std::size_t count, void** data, const std::size_t* sizes,
                  const int* tags, void** memories, void** request) noexcept;
/// Makes received data visible to the GPU, by flushing the last non-empty buffer in GPU memory. A
/// null request means that no flush is necessary.
abi::Result iflush(void* comm, int count, void** data, int* sizes, void** memories,
                   void** request) noexcept;
/// Makes progress on a request. If @p done becomes 1, the request is free for another operation.
/// @param sizes  the array to which the size of each message is written, in bytes; may be nullptr
abi::Result test(void* request, int* done, int* sizes) noexcept;

} // namespace nccl_net
