// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cm/address.hpp"
#include "cm/exchange.hpp"
#include "fabric/mapping.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::cm {

/// The address, port and port space to which an id is bound.
struct Binding {
    std::uint16_t port_space = 0;
    Address address;
    bool reuse_address = false;
    /// Whether the id receives only connection requests to addresses of its own address family.
    bool family_only = false;
};

/// All rdma_cm ports that processes of this user have bound on this machine. The ports are stored
/// in a file that these processes map. If a process is killed, its ports become free.
class Registry {
  public:
    /// The index of a binding (a bound address and port) in the file, counted from 0.
    using Index = std::uint32_t;

    /// @param exchange  identifies this process and finds processes that have ended; must outlive
    ///     this object
    /// @throws std::system_error  if open(2), posix_fallocate(3) or mmap(2) fails
    explicit Registry(const Exchange& exchange);
    ~Registry() = default;
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    /// Binds an address and a port. If the port is 0, selects a free port and stores it in @p
    /// binding. Returns 0 or the errno that the kernel returns: EADDRINUSE (the address and port
    /// are bound), EADDRNOTAVAIL (the port is bound, and one of the two addresses is unspecified;
    /// or no port is free; or no entry of the file is free), EACCES (the port is privileged, and
    /// the user is not root), EAGAIN (the file stays locked by another process).
    [[nodiscard]] int bind(Binding& binding, Index& index);
    /// Marks a binding as listening. Returns 0 or the errno that the kernel returns: EADDRINUSE or
    /// EADDRNOTAVAIL (another id is bound to the same port with RDMA_OPTION_ID_REUSEADDR), EAGAIN
    /// (the file stays locked by another process).
    [[nodiscard]] int listen(Index index);
    /// Changes the options of a binding. bind() compares them when another id binds the same port.
    void set_options(Index index, bool reuse_address, bool family_only) noexcept;
    void release(Index index) noexcept;
    /// Returns the process that has called rdma_listen() for an address. Returns no value if there
    /// is none.
    [[nodiscard]] std::optional<Peer> find(std::uint16_t port_space,
                                           const Address& destination) const;

    /// Called in a child process after fork(2). Closes the file. The bindings stay, because they
    /// belong to the parent process.
    void abandon() noexcept;
    /// Frees all ports that this process has bound. Other threads may use the object at the same
    /// time.
    void release_all() noexcept;
    /// Removes the file that contains the bound ports, and the rendezvous directory, if no process
    /// uses this directory.
    void remove_unused() const noexcept;

  private:
    struct Record;
    struct File;
    class Lock;

    /// Opens and locks the file that contains the bindings. Allocates the disk space of a new file.
    [[nodiscard]] Lock open();
    [[nodiscard]] bool valid(const Record& record) const;
    [[nodiscard]] int conflict(const Record& wanted, bool reuse) const;
    [[nodiscard]] bool port_used(std::uint16_t port_space, std::uint16_t port) const;
    /// Returns the records that may be in use.
    [[nodiscard]] std::span<Record> records() const;
    [[nodiscard]] Record* free_record();

    const Exchange& exchange_;
    fabric::UniqueFd fd_;
    fabric::Mapping mapping_;
    File* file_ = nullptr; // in mapping_
};

/// Returns whether an id that is bound to @p bound receives connection requests to @p destination.
/// Ignores the ports, which the caller must compare.
[[nodiscard]] bool accepts(const Address& bound, bool family_only, const Address& destination);

} // namespace softverbs::cm
