// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/connector.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/registering.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/transport/listener.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/options.hpp>

namespace rdmabuf::transport {

/// The devices of a process, the memory that they know, and the way to its peers. Copies share it;
/// its listeners, channels and memory keep what they need of it. Thread safe.
class Endpoint {
  public:
    /// @param devices  from 1 to 4: a channel stripes its long messages over them, the first of
    /// this
    ///                 side to the first of the other, and so on, over as many as both have. Short
    ///                 messages take the first.
    /// A failure: EINVAL for options that cannot be (the message says which), and as
    /// ProtectionDomain, Context::port() and RegistrationCache.
    [[nodiscard]] static Result<Endpoint> open(std::span<const Context> devices,
                                               const Resolver& resolver,
                                               const EndpointOptions& options = {}) noexcept {
        auto state = detail::EndpointState::make(devices, resolver, options);
        return state ? Result<Endpoint>(Endpoint(*std::move(state)))
                     : Result<Endpoint>(state.error_info());
    }
    /// With one device.
    [[nodiscard]] static Result<Endpoint> open(const Context& device, const Resolver& resolver,
                                               const EndpointOptions& options = {}) noexcept {
        return open(std::span(&device, 1), resolver, options);
    }

    [[nodiscard]] const EndpointOptions& options() const noexcept { return state_->options; }
    /// How many devices.
    [[nodiscard]] std::size_t rails() const noexcept { return state_->pds.size(); }
    [[nodiscard]] const ProtectionDomain& protection_domain(std::size_t rail = 0) const noexcept {
        return state_->pds[rail];
    }
    /// What register_memory() goes through: invalidate() what is freed, as its policy demands.
    [[nodiscard]] RegistrationCache& cache() const noexcept { return *state_->cache; }

    /// Makes memory known to all devices, whatever memory it is; from the cache where it is there.
    /// @param access  requests need: local_write and remote_write for irecv(), local_write for
    ///                iget(), remote_read for iflush(); and peers what remote() is to offer them
    /// A failure: as register_memory(); its message is the trail of what was tried.
    [[nodiscard]] Result<Memory> register_memory(const void* address, std::size_t length,
                                                 Access access = default_access) const noexcept {
        return detail::register_address(*state_, reinterpret_cast<std::uintptr_t>(address), length,
                                        access);
    }
    /// Makes a range of a dma-buf known to all devices. The descriptor stays the caller's, and may
    /// be closed afterwards. Not cached: whoever has the descriptor knows when it is done.
    /// @param address  what requests call the first byte: a pointer of the device's driver; any
    ///                 number but 0 will do
    /// A failure: as DmaBufMR.
    [[nodiscard]] Result<Memory> register_dmabuf(int fd, std::uint64_t offset, std::size_t length,
                                                 std::uintptr_t address,
                                                 Access access = default_access) const noexcept {
        return detail::register_dmabuf(
            *state_, {.fd = fd, .offset = offset, .length = length, .address = address}, access);
    }

    /// Listens for peers on a TCP port that the kernel selects.
    /// @param host  the IP address to listen at, or the name of an interface ("ib0"). If it is
    /// empty,
    ///              the interface of the default route, then one with a device, then another one,
    ///              then a bridge such as docker0, and the loopback interface last
    /// @return a failure: ENODEV when the interface does not exist, is down or has no address;
    ///         EADDRNOTAVAIL for an address of another machine; EMFILE
    [[nodiscard]] Result<Listener> listen(const std::string& host = {}) const noexcept {
        return Listener::open(state_, host);
    }
    /// Begins to connect: see Connector.
    /// @return a failure: EINVAL for an empty handle, ENETUNREACH, EMFILE
    [[nodiscard]] Result<Connector> start_connect(const Handle& handle) const noexcept {
        return Connector::open(state_, handle);
    }
    /// Connects, and waits until the peer has accepted.
    /// @param timeout  wait_forever waits
    /// A failure: as start_connect() and Connector::try_connect(), and ETIMEDOUT.
    [[nodiscard]] Result<Channel> connect(const Handle& handle,
                                          std::chrono::milliseconds timeout) const noexcept {
        auto connector = start_connect(handle);
        return connector ? connector->wait(timeout) : Result<Channel>(connector.error_info());
    }

    /// What peers and this side may do.
    static constexpr Access default_access =
        Access::local_write | Access::remote_write | Access::remote_read;

  private:
    explicit Endpoint(std::shared_ptr<detail::EndpointState> state) noexcept
        : state_(std::move(state)) {}

    std::shared_ptr<detail::EndpointState> state_;
};

} // namespace rdmabuf::transport
