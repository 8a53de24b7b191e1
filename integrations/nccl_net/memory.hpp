// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/transport.hpp>

#include "nccl_net_abi.hpp"
#include "nic.hpp"
#include "shared_endpoint.hpp"

namespace nccl_net {

/// An `mhandle` of NCCL is a pointer to an object of this type. The registration may outlive the
/// connection for which NCCL has requested it; all connections of the same NCCL communicator and
/// device can use it.
struct RegisteredMemory {
    std::shared_ptr<SharedEndpoint> endpoint;
    rdmabuf::transport::Memory memory;
};

/// Registers memory by its address, for NCCL's regMr. GPU memory is registered as a dma-buf that
/// this library exports, or by a peer memory module (nvidia_peermem).
abi::Result register_memory(const Nic& nic, const std::shared_ptr<SharedEndpoint>& endpoint,
                            void* data, std::size_t size, int kind,
                            std::unique_ptr<RegisteredMemory>& memory);
/// Registers a range of a dma-buf that NCCL has exported, for NCCL's regMrDmaBuf.
abi::Result register_dmabuf(const Nic& nic, const std::shared_ptr<SharedEndpoint>& endpoint,
                            void* data, std::size_t size, std::uint64_t offset, int fd,
                            std::unique_ptr<RegisteredMemory>& memory);

} // namespace nccl_net
