// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>

#include "cm/message.hpp"

namespace softverbs::cm {

/// Identifies a process for connection management.
struct Peer {
    /// The address of the host of the process, as a GID. All zeros: this machine.
    Gid host{};
    /// Identifies the process among all processes that this host has ever had. The low 16 bits are
    /// the number of its slot in the rendezvous directory, and the other bits are random.
    std::uint64_t process = 0;

    /// The part of Peer::process that contains the slot.
    static constexpr std::uint64_t slot_mask = 0xffff;

    auto operator<=>(const Peer&) const = default;
};

/// Sends messages of the connection manager to other processes. Messages between two processes
/// arrive in order and are not lost. All functions are called with the lock of the manager held,
/// and return without waiting.
class Exchange {
  public:
    /// The callbacks that an exchange calls when messages arrive or when the process of a peer has
    /// ended.
    class Receiver {
      public:
        virtual void received(const Peer& from, const Message& message) = 0;
        /// Called when the process @p peer has ended, or when the connection to it has failed. No
        /// more messages from this process will arrive.
        virtual void lost(const Peer& peer) = 0;

      protected:
        ~Receiver() = default;
    };

    virtual ~Exchange() = default;
    Exchange() = default;
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    /// Sends a message, or queues it if the peer cannot receive it now. Returns 0 or an errno:
    /// ENOENT (there is no such process), EACCES (the process belongs to another user), EMFILE,
    /// ENOMEM.
    [[nodiscard]] virtual int send(const Peer& to, const Message& message) noexcept = 0;
    /// Returns a descriptor that is readable when progress() must be called.
    [[nodiscard]] virtual int fd() const noexcept = 0;
    /// Receives messages, sends queued messages, and reports processes that have ended.
    virtual void progress(Receiver& receiver) = 0;
};

} // namespace softverbs::cm
