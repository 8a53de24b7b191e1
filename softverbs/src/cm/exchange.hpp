// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>

#include "cm/message.hpp"

namespace softverbs::cm {

/// Identifies a process that sends and receives messages of the connection manager.
struct Peer {
    /// The address of the host of the process, as a GID. All zeros: this machine.
    Gid host{};
    /// Identifies the process among all processes that its host has ever had. The low 16 bits are
    /// its slot (0 to 1023), which a later process can reuse. The other bits are random.
    std::uint64_t process = 0;

    /// The bits of Peer::process that contain the slot (0 to 1023).
    static constexpr std::uint64_t slot_mask = 0xffff;

    auto operator<=>(const Peer&) const = default;
};

/// Exchanges messages of the connection manager (such as REQ and REP) with other processes.
/// Messages between two processes arrive in the order in which they were sent. A message is lost
/// only if the connection fails, if too many messages are queued for a process that does not
/// receive them, or if memory or file descriptors are exhausted. The caller must hold Manager::lock
/// during all calls. No function waits.
class Exchange {
  public:
    /// Callbacks of an Exchange, for messages that have arrived and for processes that have ended.
    class Receiver {
      public:
        virtual void received(const Peer& from, const Message& message) = 0;
        /// Called when the process @p peer has ended, or when the connection to it has failed. No
        /// more messages from that process will arrive.
        virtual void lost(const Peer& peer) = 0;

      protected:
        ~Receiver() = default;
    };

    virtual ~Exchange() = default;
    Exchange() = default;
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    /// Sends a message to the process @p to, or queues it if the process cannot receive it now.
    /// Returns 0 or an errno: ENOENT (there is no such process), EACCES (the process belongs to
    /// another user), EAGAIN (the process accepts no connections now), EMFILE, ENOMEM.
    [[nodiscard]] virtual int send(const Peer& to, const Message& message) noexcept = 0;
    /// Returns a file descriptor that becomes readable when progress() must be called. The Exchange
    /// owns it.
    [[nodiscard]] virtual int fd() const noexcept = 0;
    /// Receives messages, sends queued messages, and reports processes that have ended to @p
    /// receiver.
    virtual void progress(Receiver& receiver) = 0;
};

} // namespace softverbs::cm
