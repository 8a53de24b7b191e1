// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

#include <unistd.h>

#include <mutex>
#include <span>

#include <rdmabuf/error.hpp>

#include "log.hpp"

namespace nccl_net {

using rdmabuf::LocalChunk;
using rdmabuf::ProtectionDomain;
using Regions = std::vector<std::span<const LocalChunk>>;

abi::Result RegisteredMemory::register_address(const Nic& nic, void* data, std::size_t size) {
    return register_with("regMr", nic, data, size, [&](std::span<const ProtectionDomain> domains) {
        region_.emplace(domains, nic.resolver, reinterpret_cast<std::uintptr_t>(data), size,
                        rdmabuf::ChunkedRegionOptions{.registration = nic.registration});
        Regions regions;
        for (std::size_t i = 0; i < domains.size(); ++i) {
            regions.push_back(region_->chunks(i));
        }
        return regions;
    });
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
    std::vector<LocalChunk> chunks;
    return register_with(
        "regMrDmaBuf", nic, data, size, [&](std::span<const ProtectionDomain> domains) {
            for (const ProtectionDomain& domain : domains) {
                chunks.push_back(as_chunk(dmabufs_.emplace_back(
                    domain,
                    rdmabuf::DmaBufRange{
                        .fd = fd, .offset = offset, .length = size, .address = address},
                    rdmabuf::DmaBufOptions{.access = nic.registration.access})));
            }
            Regions regions;
            for (const LocalChunk& chunk : chunks) {
                regions.emplace_back(&chunk, 1);
            }
            return regions;
        });
}

template <class Register>
abi::Result RegisteredMemory::register_with(const char* function, const Nic& nic, void* data,
                                            std::size_t size, const Register& call) {
    const rdmabuf::transport::Endpoint& endpoint = endpoint_->endpoint;
    const auto made = rdmabuf::attempt([&] {
        std::vector<std::size_t> devices;
        std::vector<ProtectionDomain> domains;
        std::unique_lock lock(endpoint_->mutex);
        for (std::size_t i = 0; i < endpoint.rails(); ++i) {
            if (endpoint.works(i)) {
                devices.push_back(i);
                domains.push_back(endpoint.protection_domain(i));
            }
        }
        lock.unlock();
        const Regions registered = call(domains);
        Regions regions(endpoint.rails());
        for (std::size_t i = 0; i < devices.size(); ++i) {
            regions[devices[i]] = registered[i];
        }
        const bool host = region_ && region_->path() == rdmabuf::RegistrationPath::host;
        lock.lock();
        memory_ = endpoint.use_regions(data, size, nic.registration.access, host, regions).value();
        lock.unlock();
        // remote() fails if the memory has more regions than a descriptor can hold. A receive into
        // such memory would never be advertised.
        static_cast<void>(memory_.remote().value());
    });
    return made ? abi::Result::success : log::failed(function, nic.name, made.error_info());
}

} // namespace nccl_net
