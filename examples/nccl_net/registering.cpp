// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "log.hpp"
#include "plugin.hpp"

namespace nccl_net {

abi::Result register_memory(const Communicator& comm, void* data, std::size_t size, int kind,
                            void*& memory) {
    const Nic& nic = comm.nic();
    if (kind == abi::pointer_cuda && (nic.pointers & abi::pointer_cuda) == 0) {
        log::warn("regMr", nic.name + ": pointers to GPU memory cannot be registered: " +
                               nic.no_pointers_to_gpus);
        return abi::Result::invalid_usage;
    }
    auto registered = comm.endpoint().register_memory(data, size);
    if (!registered) {
        return log::failed("regMr", nic.name, registered.error_info());
    }
    if (kind == abi::pointer_cuda && registered->host()) {
        log::warn("regMr", nic.name + ": NCCL passed host memory as GPU memory");
        return abi::Result::invalid_usage;
    }
    memory = new Memory(*std::move(registered));
    return abi::Result::success;
}

abi::Result register_dmabuf(const Communicator& comm, void* data, std::size_t size,
                            std::uint64_t offset, int fd, void*& memory) {
    const Nic& nic = comm.nic();
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (address % page != offset % page) {
        log::warn("regMrDmaBuf", nic.name +
                                     ": the address and the offset in the dma-buf have different "
                                     "offsets in their pages");
        return abi::Result::invalid_usage;
    }
    auto registered = comm.endpoint().register_dmabuf(fd, offset, size, address);
    if (!registered) {
        return log::failed("regMrDmaBuf", nic.name, registered.error_info());
    }
    memory = new Memory(*std::move(registered));
    return abi::Result::success;
}

} // namespace nccl_net
