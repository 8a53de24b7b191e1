// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/transport.hpp>

#include "nccl_net_abi.hpp"
#include "nic.hpp"

namespace nccl_net {

/// Memory that NCCL has registered. The registration may outlive the connection for which NCCL has
/// requested it; all connections of the same endpoint can use it.
class RegisteredMemory {
  public:
    explicit RegisteredMemory(std::shared_ptr<SharedEndpoint> endpoint) noexcept
        : endpoint_(std::move(endpoint)) {}

    // The functions below register memory with the devices of the endpoint that have not failed.
    // The lock of the endpoint is not held during the registration, which can take long.

    /// Registers memory by its address, for NCCL's regMr. GPU memory is registered as a dma-buf
    /// that this library exports, or by a peer memory module (nvidia_peermem).
    abi::Result register_address(const Nic& nic, void* data, std::size_t size);
    /// Registers a range of a dma-buf that NCCL has exported, for NCCL's regMrDmaBuf.
    abi::Result register_dmabuf(const Nic& nic, void* data, std::size_t size, std::uint64_t offset,
                                int fd);

    [[nodiscard]] const rdmabuf::transport::Memory& memory() const noexcept { return memory_; }

  private:
    /// Passes the regions of the memory to Endpoint::use_regions().
    /// @param call  registers the memory with each of these protection domains, and returns the
    ///              regions of each
    template <class Register>
    abi::Result register_with(const char* function, const Nic& nic, void* data, std::size_t size,
                              const Register& call);

    std::shared_ptr<SharedEndpoint> endpoint_;
    std::optional<rdmabuf::ChunkedRegion> region_;
    std::vector<rdmabuf::DmaBufMR> dmabufs_;
    rdmabuf::transport::Memory memory_;
};

/// An `mhandle` of NCCL is a pointer to an object of this type. Requests in flight have copies of
/// this object: when an NCCL communicator is aborted, NCCL deregisters memory before it closes the
/// connections that use it. A request releases its copy when it completes, because freed GPU memory
/// that is still registered cannot be allocated again.
using MemoryHandle = std::shared_ptr<const RegisteredMemory>;

} // namespace nccl_net
