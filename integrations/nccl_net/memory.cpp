// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

#include <unistd.h>

#include <mutex>
#include <string>
#include <utility>

#include <rdmabuf/access.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/result.hpp>

#include "log.hpp"

namespace nccl_net {
namespace {

using rdmabuf::Access;

Access access_for(const Nic& nic) noexcept {
    const Access access = rdmabuf::transport::Endpoint::default_access;
    return nic.relaxed_ordering ? access | Access::relaxed_ordering : access;
}

} // namespace

abi::Result register_memory(const Nic& nic, const std::shared_ptr<SharedEndpoint>& endpoint,
                            void* data, std::size_t size, int kind, MemoryHandle& memory) {
    if (kind == abi::pointer_cuda && (nic.pointers & abi::pointer_cuda) == 0) {
        log::warn("regMr", nic.name + ": pointers to GPU memory cannot be registered: " +
                               nic.no_pointers_to_gpus);
        return abi::Result::invalid_usage;
    }
    const Access access = access_for(nic);
    // A registration takes milliseconds. The cache is thread safe, so the memory is registered here
    // without the lock of the endpoint. register_memory() below then finds it in the cache. Memory
    // that needs several regions, because it is longer than max_region, is not cached.
    rdmabuf::RegistrationCache::Lease lease;
    if (size <= nic.max_region) {
        auto acquired = rdmabuf::attempt([&] {
            return endpoint->endpoint.cache().acquire(reinterpret_cast<std::uintptr_t>(data), size,
                                                      access);
        });
        if (!acquired) {
            return log::failed("regMr", nic.name, acquired.error_info());
        }
        lease = *std::move(acquired);
    }
    std::unique_lock lock(endpoint->mutex);
    auto registered = endpoint->endpoint.register_memory(data, size, access);
    lock.unlock();
    if (!registered) {
        return log::failed("regMr", nic.name, registered.error_info());
    }
    if (kind == abi::pointer_cuda && registered->host()) {
        log::warn("regMr", nic.name + ": NCCL passed host memory as GPU memory");
        return abi::Result::invalid_usage;
    }
    memory = std::make_shared<RegisteredMemory>(endpoint, *std::move(registered),
                                                static_cast<bool>(lease));
    return abi::Result::success;
}

abi::Result register_dmabuf(const Nic& nic, const std::shared_ptr<SharedEndpoint>& endpoint,
                            void* data, std::size_t size, std::uint64_t offset, int fd,
                            MemoryHandle& memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (address % page != offset % page) {
        log::warn("regMrDmaBuf", nic.name +
                                     ": the address and the offset in the dma-buf have different "
                                     "offsets in their pages");
        return abi::Result::invalid_usage;
    }
    std::unique_lock lock(endpoint->mutex);
    auto registered =
        endpoint->endpoint.register_dmabuf(fd, offset, size, address, access_for(nic));
    lock.unlock();
    if (!registered) {
        return log::failed("regMrDmaBuf", nic.name, registered.error_info());
    }
    memory = std::make_shared<RegisteredMemory>(endpoint, *std::move(registered), false);
    return abi::Result::success;
}

} // namespace nccl_net
