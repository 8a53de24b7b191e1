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

/// The exchange between processes of one user on this machine. Each process listens on a SEQPACKET
/// socket in its slot; the first message from another process connects to it. The end of a process
/// is the end of its connections.
class LocalExchange final : public Exchange {
  public:
    /// Takes a slot in the directory cm inside the rendezvous directory.
    /// @param is_usable  as for fabric::Slot
    /// @throws std::system_error as fabric::Rendezvous and fabric::Slot
    explicit LocalExchange(const std::function<bool(unsigned)>& is_usable = [](unsigned) {
        return true;
    });
    ~LocalExchange() override;

    /// This process, as other processes of this machine address it.
    [[nodiscard]] const Peer& self() const noexcept { return self_; }
    [[nodiscard]] const fabric::Rendezvous& rendezvous() const noexcept { return rendezvous_; }
    /// Whether the process in a slot lives. False for this process's own slot.
    [[nodiscard]] bool alive(unsigned slot) const;
    /// Removes this process's files. Safe while another thread uses the object.
    void remove_files() const noexcept;
    /// After fork(2), in the child: closes the descriptors and leaves the files to the parent.
    void abandon() noexcept;

    [[nodiscard]] int send(const Peer& to, const Message& message) noexcept override;
    [[nodiscard]] int fd() const noexcept override { return epoll_.get(); }
    void progress(Receiver& receiver) override;

  private:
    struct Link {
        fabric::UniqueFd socket;
        Peer peer; // process 0: its hello has not come yet
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
