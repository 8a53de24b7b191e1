// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "cm/exchange.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/spare_descriptor.hpp"

namespace softverbs::cm {

/// Number of slots in the rendezvous directory: the maximum number of processes on this machine.
inline constexpr unsigned max_processes = 1024;

/// The exchange between processes of one user on this machine. Each process listens on a SEQPACKET
/// socket in the rendezvous directory. Sending the first message to a process connects to its
/// socket. When a process ends, its connections are closed.
class LocalExchange final : public Exchange {
  public:
    /// Locks a free file in the subdirectory "cm" of the rendezvous directory. The number of the
    /// file (the slot) identifies this process.
    /// @param is_usable  whether this process can use the slot with a given number
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
    /// Returns whether a running process owns the slot with this number.
    [[nodiscard]] bool alive(unsigned slot) const;
    /// Removes the files of this process from the rendezvous directory. Other threads may use the
    /// object at the same time.
    void remove_files() const noexcept;
    /// Closes the descriptors in a child process after fork(2). The files are not removed, because
    /// they belong to the parent.
    void abandon() noexcept;

    [[nodiscard]] int send(const Peer& to, const Message& message) noexcept override;
    [[nodiscard]] int fd() const noexcept override { return epoll_.get(); }
    void progress(Receiver& receiver) override;

  private:
    struct Link {
        fabric::UniqueFd socket;
        Peer peer; // process is 0 until its hello has arrived
        std::deque<Message> waiting;
        bool broken = false;
    };

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
};

} // namespace softverbs::cm
