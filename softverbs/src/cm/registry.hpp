// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cm/address.hpp"
#include "cm/local_exchange.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::cm {

/// The address and port that an id has bound, in a port space.
struct Binding {
    std::uint16_t port_space = 0;
    Address address;
    bool reuse_address = false;
    /// The id receives requests to addresses of its own family only.
    bool family_only = false;
};

/// The bound ports of all processes of this user on this machine, in a file that the processes map.
/// What a process that was killed had bound is free again.
class Registry {
  public:
    /// Place of a binding in the file.
    using Index = std::uint32_t;

    /// @param exchange outlives the registry
    /// @throws std::system_error what open(2) and mmap(2) say
    explicit Registry(const LocalExchange& exchange);
    ~Registry();
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    /// Binds a port; where @p binding has port 0, selects one and stores it there. 0, or the
    /// kernel's errno: EADDRINUSE (the same address), EADDRNOTAVAIL (one of the two is unspecified,
    /// or no port is left), EACCES (a privileged port), EAGAIN (another process holds the lock).
    [[nodiscard]] int bind(Binding& binding, Index& index);
    /// Makes a bound id the receiver of requests. 0, or EADDRINUSE, EADDRNOTAVAIL: another id that
    /// shares the port by SO_REUSEADDR's counterpart listens already.
    [[nodiscard]] int listen(Index index);
    void release(Index index) noexcept;
    /// The process that listens at an address.
    [[nodiscard]] std::optional<Peer> find(std::uint16_t port_space,
                                           const Address& destination) const;

    /// After fork(2), in the child: frees nothing.
    void abandon() noexcept;
    /// Frees all that this process has bound. Safe while another thread uses the object.
    void release_all() noexcept;
    /// Removes the file and its directory, unless another process has a slot in the directory.
    void remove_unused() const noexcept;

  private:
    struct Record;
    struct File;
    class Lock;

    [[nodiscard]] bool valid(const Record& record) const;
    [[nodiscard]] int conflict(const Record& wanted, bool reuse) const;
    [[nodiscard]] bool port_used(std::uint16_t port_space, std::uint16_t port) const;
    [[nodiscard]] Record* free_record();

    const LocalExchange& exchange_;
    fabric::UniqueFd fd_;
    File* file_ = nullptr;
};

/// Whether an id with this bound address receives requests to @p destination, which has the same
/// port.
[[nodiscard]] bool accepts(const Address& bound, bool family_only, const Address& destination);

} // namespace softverbs::cm
