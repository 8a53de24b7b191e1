// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>

#include "cm/message.hpp"

namespace softverbs::cm {

/// A process that takes part in connection management.
struct Peer {
    /// The host's address in the form of a GID; all zeros: this machine.
    Gid host{};
    /// Unique among the host's processes, also over time: the low 16 bits are the process's slot,
    /// the others are random.
    std::uint64_t process = 0;

    auto operator<=>(const Peer&) const = default;
};

/// Carries CM messages between processes: reliably and in order between any two of them. The
/// manager calls all functions with its lock held; none of them waits.
class Exchange {
  public:
    /// Where an exchange delivers.
    class Receiver {
      public:
        virtual void received(const Peer& from, const Message& message) = 0;
        /// The process ended, or the way to it broke. Nothing more comes from it.
        virtual void lost(const Peer& peer) = 0;

      protected:
        ~Receiver() = default;
    };

    virtual ~Exchange() = default;
    Exchange() = default;
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    /// Sends a message, now or as soon as the peer reads. Returns 0 or an errno: ENOENT (there is
    /// no such process), EACCES (it is another user's), EMFILE, ENOMEM.
    [[nodiscard]] virtual int send(const Peer& to, const Message& message) noexcept = 0;
    /// A descriptor that is readable when progress() has something to do.
    [[nodiscard]] virtual int fd() const noexcept = 0;
    /// Receives what came, sends what waits, and reports processes that ended.
    virtual void progress(Receiver& receiver) = 0;
};

} // namespace softverbs::cm
