// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/transport/memory.hpp>

namespace rdmabuf::transport::detail {

/// The devices of an endpoint that register memory: the first device, and the others that have not
/// failed.
struct RegisteringDevices {
    static constexpr std::size_t failed = max_rails;

    std::vector<ProtectionDomain> pds;
    /// For each device of the endpoint, the index of its protection domain in `pds`, or `failed`.
    std::array<std::size_t, max_rails> index{};

    [[nodiscard]] bool works(std::size_t rail) const noexcept { return index[rail] != failed; }
};

/// Copies the lkeys and rkeys of a cached registration to @p state. @p state keeps the lease, so
/// the memory stays registered. The members address, length and rails of @p state must be set.
/// Allocates no memory if MemoryState::chunks of each device has capacity for one element.
/// @param devices  the devices that have registered the memory. The keys for failed devices are 0,
///                 because no channel uses them.
inline void use_lease(MemoryState& state, RegistrationCache::Lease lease,
                      const RegisteringDevices& devices) {
    state.lease = std::move(lease);
    state.iova = state.address;
    state.host = state.lease.registration().path() == RegistrationPath::host;
    for (std::size_t rail = 0; rail < state.rails; ++rail) {
        const bool works = devices.works(rail);
        state.chunks[rail].assign(1, {.address = state.iova,
                                      .length = state.length,
                                      .lkey = works ? state.lease.lkey(devices.index[rail]) : 0,
                                      .rkey = works ? state.lease.rkey(devices.index[rail]) : 0});
    }
}

/// The memory of one request that the program started without a Memory object. This object keeps a
/// lease of the registration cache until the request ends.
struct LeasedMemory : MemoryState {
    /// The `context` argument with which the program started the request. RequestState::context
    /// points to this object instead, until the request has completed.
    void* context = nullptr;
    LeasedMemory* next_free = nullptr;
};

/// A pool of unused LeasedMemory objects. It grows when all objects are in use.
class LeasePool {
  public:
    /// Takes an object from the pool. @return nullptr if memory is exhausted
    /// @param devices  the number of devices of the endpoint
    [[nodiscard]] LeasedMemory* take(std::size_t devices) noexcept {
        if (free_ == nullptr) {
            auto made = attempt([this, devices] {
                auto memory = std::make_unique<LeasedMemory>();
                for (auto& chunks : std::span(memory->chunks).first(devices)) {
                    chunks.reserve(1);
                }
                objects_.push_back(std::move(memory));
                return objects_.back().get();
            });
            return made ? *made : nullptr;
        }
        return std::exchange(free_, free_->next_free);
    }
    /// Ends the lease of an object and returns the object to the pool.
    void give_back(LeasedMemory* memory) noexcept {
        memory->lease.reset();
        memory->next_free = free_;
        free_ = memory;
    }

  private:
    std::vector<std::unique_ptr<LeasedMemory>> objects_;
    LeasedMemory* free_ = nullptr;
};

} // namespace rdmabuf::transport::detail
