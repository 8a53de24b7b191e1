// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

#include <unistd.h>

#include <mutex>
#include <span>
#include <utility>

#include <rdmabuf/error.hpp>

#include "log.hpp"

namespace nccl_net {

using rdmabuf::LocalChunk;
using rdmabuf::transport::Endpoint;

std::vector<std::size_t> RegisteredMemory::working_devices() const {
    const std::lock_guard lock(endpoint_->mutex);
    std::vector<std::size_t> devices;
    for (std::size_t i = 0; i < endpoint_->endpoint.rails(); ++i) {
        if (endpoint_->endpoint.works(i)) {
            devices.push_back(i);
        }
    }
    return devices;
}

abi::Result RegisteredMemory::register_address(const Nic& nic, void* data, std::size_t size) {
    const Endpoint& endpoint = endpoint_->endpoint;
    const std::vector<std::size_t> devices = working_devices();
    const auto made = rdmabuf::attempt([&] {
        std::vector<rdmabuf::ProtectionDomain> domains;
        domains.reserve(devices.size());
        for (const std::size_t device : devices) {
            domains.push_back(endpoint.protection_domain(device));
        }
        region_.emplace(domains, nic.resolver, reinterpret_cast<std::uintptr_t>(data), size,
                        rdmabuf::ChunkedRegionOptions{.registration = nic.registration});
    });
    if (!made) {
        return log::failed("regMr", nic.name, made.error_info());
    }
    std::vector<std::span<const LocalChunk>> regions(endpoint.rails());
    for (std::size_t i = 0; i < devices.size(); ++i) {
        regions[devices[i]] = region_->chunks(i);
    }
    return use("regMr", nic, data, size, region_->path() == rdmabuf::RegistrationPath::host,
               regions);
}

abi::Result RegisteredMemory::register_dmabuf(const Nic& nic, void* data, std::size_t size,
                                              std::uint64_t offset, int fd) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (address % page != offset % page) {
        log::warn("regMrDmaBuf", nic.name +
                                     ": the address and the offset in the dma-buf have different "
                                     "offsets in their pages");
        return abi::Result::invalid_usage;
    }
    const Endpoint& endpoint = endpoint_->endpoint;
    const std::vector<std::size_t> devices = working_devices();
    const auto made = rdmabuf::attempt([&] {
        for (const std::size_t device : devices) {
            dmabufs_.emplace_back(
                endpoint.protection_domain(device),
                rdmabuf::DmaBufRange{
                    .fd = fd, .offset = offset, .length = size, .address = address},
                rdmabuf::DmaBufOptions{.access = nic.registration.access});
        }
    });
    if (!made) {
        return log::failed("regMrDmaBuf", nic.name, made.error_info());
    }
    std::vector<LocalChunk> chunks;
    chunks.reserve(dmabufs_.size());
    for (const rdmabuf::DmaBufMR& region : dmabufs_) {
        chunks.push_back(as_chunk(region));
    }
    std::vector<std::span<const LocalChunk>> regions(endpoint.rails());
    for (std::size_t i = 0; i < devices.size(); ++i) {
        regions[devices[i]] = {&chunks[i], 1};
    }
    return use("regMrDmaBuf", nic, data, size, false, regions);
}

abi::Result RegisteredMemory::use(const char* function, const Nic& nic, void* data,
                                  std::size_t size, bool host,
                                  std::span<const std::span<const LocalChunk>> regions) {
    std::unique_lock lock(endpoint_->mutex);
    auto used = endpoint_->endpoint.use_regions(data, size, nic.registration.access, host, regions);
    lock.unlock();
    if (!used) {
        return log::failed(function, nic.name, used.error_info());
    }
    memory_ = *std::move(used);
    // remote() fails if the memory has more regions than a descriptor can hold. A receive into such
    // memory would never be advertised.
    if (auto described = memory_.remote(); !described) {
        return log::failed(function, nic.name, described.error_info());
    }
    return abi::Result::success;
}

} // namespace nccl_net
