// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>

#include "cm/message.hpp"

namespace softverbs::cm {

/// A process that takes part in connection management.
struct Peer {
    /// The address of the process's host in the form of a GID; all zeros: this machine.
    Gid host{};
    /// A number that only this process of the host ever has: the low 16 bits are the slot of the
    /// process in the rendezvous directory, the other bits are random.
    std::uint64_t process = 0;

    auto operator<=>(const Peer&) const = default;
};

/// Carries CM messages between processes. Messages between two processes arrive reliably and in
/// order. The manager calls all functions with its lock held, and no function waits.
class Exchange {
  public:
    /// The callbacks of an exchange.
    class Receiver {
      public:
        virtual void received(const Peer& from, const Message& message) = 0;
        /// The process of @p peer has ended, or the connection to it has failed. No more messages
        /// arrive from this process.
        virtual void lost(const Peer& peer) = 0;

      protected:
        ~Receiver() = default;
    };

    virtual ~Exchange() = default;
    Exchange() = default;
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    /// Sends a message, or queues it until the peer reads. Returns 0 or an errno: ENOENT (there is
    /// no such process), EACCES (the process belongs to another user), EMFILE, ENOMEM.
    [[nodiscard]] virtual int send(const Peer& to, const Message& message) noexcept = 0;
    /// Returns a descriptor that is readable when progress() must be called.
    [[nodiscard]] virtual int fd() const noexcept = 0;
    /// Receives messages, sends queued messages, and reports the processes that have ended.
    virtual void progress(Receiver& receiver) = 0;
};

} // namespace softverbs::cm
