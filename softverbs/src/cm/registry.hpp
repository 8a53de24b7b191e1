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
    /// The id receives only connection requests to addresses of its own family.
    bool family_only = false;
};

/// The ports that all processes of this user on this machine have bound. They are in a file that
/// these processes map. The ports of a process that was killed become free.
class Registry {
  public:
    /// Index of a binding in the file.
    using Index = std::uint32_t;

    /// @param exchange  must outlive the registry
    /// @throws std::system_error  the errors of open(2) and mmap(2)
    explicit Registry(const LocalExchange& exchange);
    ~Registry();
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    /// Binds an address and a port. If @p binding has port 0, selects a free port and stores it
    /// there. Returns 0 or the errno of the kernel: EADDRINUSE (the same address is bound),
    /// EADDRNOTAVAIL (one of the two conflicting addresses is unspecified, or no port is free),
    /// EACCES (a privileged port), EAGAIN (another process holds the lock).
    [[nodiscard]] int bind(Binding& binding, Index& index);
    /// Makes a bound id a listener. Returns 0 or the errno of the kernel: EADDRINUSE or
    /// EADDRNOTAVAIL (another id is bound to the same port, by RDMA_OPTION_ID_REUSEADDR), EAGAIN
    /// (another process holds the lock).
    [[nodiscard]] int listen(Index index);
    void release(Index index) noexcept;
    /// Returns the process that listens at an address; no value if there is none.
    [[nodiscard]] std::optional<Peer> find(std::uint16_t port_space,
                                           const Address& destination) const;

    /// For the child process after fork(2): frees nothing, because the bindings belong to the
    /// parent.
    void abandon() noexcept;
    /// Frees all bindings of this process. It can be called while another thread uses the object.
    void release_all() noexcept;
    /// Removes the file and its directory, unless another process uses the directory.
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

/// Returns whether an id that is bound to the address @p bound receives connection requests to @p
/// destination, which has the same port.
[[nodiscard]] bool accepts(const Address& bound, bool family_only, const Address& destination);

} // namespace softverbs::cm
