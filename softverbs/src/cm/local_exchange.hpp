// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "cm/exchange.hpp"
#include "fabric/rendezvous.hpp"

namespace softverbs::cm {

/// Slots in the rendezvous directory: the maximum number of processes on one machine.
inline constexpr unsigned max_processes = 1024;

/// The exchange between processes of the same user on this machine. Each process listens on a
/// SEQPACKET socket in the rendezvous directory. The first message to another process connects to
/// the socket of that process. When a process ends, its connections are closed.
class LocalExchange final : public Exchange {
  public:
    /// Takes a slot in the subdirectory cm of the rendezvous directory.
    /// @param is_usable  as for fabric::Slot
    /// @throws std::system_error  the errors of fabric::Rendezvous and fabric::Slot
    explicit LocalExchange(const std::function<bool(unsigned)>& is_usable = [](unsigned) {
        return true;
    });
    LocalExchange(const LocalExchange&) = delete;
    LocalExchange& operator=(const LocalExchange&) = delete;
    ~LocalExchange() override;

    /// The identity of this process for other processes of this machine.
    [[nodiscard]] const Peer& self() const noexcept { return self_; }
    [[nodiscard]] const fabric::Rendezvous& rendezvous() const noexcept { return rendezvous_; }
    /// Returns whether the process in a slot of the directory is alive.
    [[nodiscard]] bool alive(unsigned slot) const;
    /// Removes the files of this process. It can be called while another thread uses the object.
    void remove_files() const noexcept;
    /// For the child process after fork(2): closes the descriptors. The files belong to the parent
    /// and are kept.
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
    Peer self_;
    std::map<int, std::unique_ptr<Link>> links_; // by descriptor
};

} // namespace softverbs::cm
