// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <rdmabuf/transport.hpp>

#include "nccl_net_abi.hpp"
#include "nic.hpp"
#include "shared_endpoint.hpp"

namespace nccl_net {

/// Memory that NCCL has registered. The registration may outlive the connection for which NCCL has
/// requested it; all connections of the same NCCL communicator and device can use it.
class RegisteredMemory {
  public:
    /// @param cached  true if the registration is from the cache of the endpoint
    RegisteredMemory(std::shared_ptr<SharedEndpoint> endpoint, rdmabuf::transport::Memory memory,
                     bool cached) noexcept
        : endpoint_(std::move(endpoint)), memory_(std::move(memory)), cached_(cached) {}
    RegisteredMemory(const RegisteredMemory&) = delete;
    RegisteredMemory& operator=(const RegisteredMemory&) = delete;
    ~RegisteredMemory() = default;

    /// Removes the registration from the cache, because NCCL may free the memory next. The
    /// registration ends with the requests in flight that use it. Freed GPU memory that is still
    /// registered cannot be allocated again.
    void remove_from_cache() const noexcept {
        if (cached_) {
            endpoint_->endpoint.cache().invalidate(memory_.address(),
                                                   static_cast<std::size_t>(memory_.length()));
        }
    }

    [[nodiscard]] const rdmabuf::transport::Memory& memory() const noexcept { return memory_; }

  private:
    std::shared_ptr<SharedEndpoint> endpoint_;
    rdmabuf::transport::Memory memory_;
    bool cached_;
};

/// An `mhandle` of NCCL is a pointer to an object of this type. Requests in flight have copies of
/// it: when an NCCL communicator is aborted, NCCL deregisters memory before it closes the
/// connections that use it.
using MemoryHandle = std::shared_ptr<const RegisteredMemory>;

/// Registers memory by its address, for NCCL's regMr. GPU memory is registered as a dma-buf that
/// this library exports, or by a peer memory module (nvidia_peermem).
abi::Result register_memory(const Nic& nic, const std::shared_ptr<SharedEndpoint>& endpoint,
                            void* data, std::size_t size, int kind, MemoryHandle& memory);
/// Registers a range of a dma-buf that NCCL has exported, for NCCL's regMrDmaBuf.
abi::Result register_dmabuf(const Nic& nic, const std::shared_ptr<SharedEndpoint>& endpoint,
                            void* data, std::size_t size, std::uint64_t offset, int fd,
                            MemoryHandle& memory);

} // namespace nccl_net
