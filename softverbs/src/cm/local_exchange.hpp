// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "cm/exchange.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/spare_descriptor.hpp"

namespace softverbs::cm {

/// Maximum number of processes of one user on this machine that use rdma_cm at the same time.
inline constexpr unsigned max_processes = 1024;

/// Exchanges messages of the connection manager between processes of one user on this machine. Each
/// process listens on a SEQPACKET socket in the rendezvous directory (the directory in which these
/// processes find each other). A process connects to the socket of another process when it sends
/// the first message. When a process ends, its connections are closed.
class LocalExchange final : public Exchange {
  public:
    /// Takes a free slot (0 to 1023) of the subdirectory "cm" of the rendezvous directory, and
    /// locks its lock file.
    /// @param is_usable  returns whether this process can use the given slot
    /// @throws std::system_error  the directory cannot be used, or no slot is free
    explicit LocalExchange(const std::function<bool(unsigned)>& is_usable = [](unsigned) {
        return true;
    });
    LocalExchange(const LocalExchange&) = delete;
    LocalExchange& operator=(const LocalExchange&) = delete;
    ~LocalExchange() override;

    /// Returns the Peer by which other processes of this machine identify this process.
    [[nodiscard]] const Peer& self() const noexcept { return self_; }
    [[nodiscard]] const fabric::Rendezvous& rendezvous() const noexcept { return rendezvous_; }
    /// Returns whether a running process owns the slot @p slot.
    [[nodiscard]] bool alive(unsigned slot) const;
    /// Removes the files of this process from the rendezvous directory. Other threads may use the
    /// object at the same time.
    void remove_files() const noexcept;
    /// Called in a child process after fork(2). Closes the file descriptors that the child has
    /// inherited. The lock file and the socket in the rendezvous directory are not removed, because
    /// they belong to the parent.
    void abandon() noexcept;

    [[nodiscard]] int send(const Peer& to, const Message& message) noexcept override;
    [[nodiscard]] int fd() const noexcept override { return epoll_.get(); }
    void progress(Receiver& receiver) override;

  private:
    struct Link {
        fabric::UniqueFd socket;
        Peer peer; // Peer::process is 0 until the Hello of the other process has arrived
        std::deque<Message> waiting;
        /// The number of links that this process created before this link. The oldest link has the
        /// smallest number.
        std::uint64_t number = 0;
        bool broken = false;
    };

    /// Returns the oldest link to @p peer that is not broken. Two processes that connect to each
    /// other at the same time have two links; all messages to @p peer use the oldest one.
    [[nodiscard]] Link* find(const Peer& peer) noexcept;
    [[nodiscard]] Link* add(fabric::UniqueFd socket, const Peer& peer);
    [[nodiscard]] Link* connect(const Peer& to);
    void accept_all();
    void flush(Link& link) noexcept;
    void receive(Link& link, Receiver& receiver);
    void remove_broken(Receiver& receiver);

    fabric::Rendezvous rendezvous_;
    fabric::Slot slot_;
    fabric::UniqueFd epoll_;
    fabric::SpareDescriptor spare_;
    Peer self_;
    std::map<int, std::unique_ptr<Link>> links_; // by descriptor
    std::uint64_t links_made_ = 0;
};

} // namespace softverbs::cm
