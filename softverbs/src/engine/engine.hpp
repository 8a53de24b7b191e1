// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>

namespace softverbs {

struct Cq;
struct Qp;
class Lock;
namespace fabric {
class Node;
}

/// Executes the posted work requests. It sends packets to the other queue pair, in this process or
/// in another one, and handles the packets that arrive. The caller holds Process::lock unless a
/// comment says otherwise.
class Engine {
  public:
    Engine();
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Makes this process reachable for other processes through the rendezvous directory, and
    /// starts the agent thread, which makes progress when the program does not poll. Later calls do
    /// nothing. Returns 0 or an errno; on failure it prints a message on stderr that says what to
    /// do.
    [[nodiscard]] int start();
    /// Returns the slot of this process, a number that forms the upper bits of its queue pair
    /// numbers. Valid after start().
    [[nodiscard]] unsigned slot() const noexcept;

    /// Call this after requests were posted to a queue pair in state RTS.
    void posted(Qp& qp);
    /// Handles arrived packets, continues sends that waited for room in a connection, and runs
    /// expired timers. ibv_poll_cq() and ibv_start_poll() call this.
    void progress();
    /// Call this before the program waits for an event: it will not poll, so the agent thread
    /// starts to make progress at once.
    void program_sleeps();

    /// Sets the time at which the delayed event of a moderated completion queue is raised.
    /// @param period_ns  nanoseconds from now; 0: cancels the delayed event
    void moderated(Cq& cq, std::uint64_t period_ns);
    /// Call this after modify_qp() has changed the state.
    void state_changed(Qp& qp, ibv_qp_state from);
    /// Call this after the send queue was flushed: stops the queue pair's timers and waits.
    void flushed(Qp& qp);
    /// Call this before a queue pair is freed: the engine drops all references to it.
    void destroyed(Qp& qp);
    /// Call this after the state or number of ports has changed: resumes queue pairs that can send
    /// again.
    void ports_changed();
    /// Call this before memory becomes invalid that read responses have offered to peers for a
    /// direct copy. A direct copy after this call fails, and the peer requests the data again.
    void withdraw_responses() noexcept;
    /// Withdraws the permission of other processes to write directly into memory of this process.
    /// When it returns, no direct write is in progress. Later writes arrive as packets, and the
    /// first of them grants the permission again.
    void withdraw_writes() noexcept;
    /// Call this before a mapping is freed: the peers that have mapped its memory are requested to
    /// unmap it.
    void unshare(std::uint32_t id);

    /// Returns how the most recently connected process reads private memory of this process:
    /// "process_vm" (with process_vm_readv(2)), "records" (the data is sent in packets) or "none
    /// yet".
    [[nodiscard]] const char* pull_method() const noexcept;
    /// Call this in the child after fork(2), with Process::lock held: drops the connections of the
    /// parent without closing them.
    void abandon();
    /// Call this when the process exits: closes all connections and joins the agent thread.
    /// @param lock  holds Process::lock; released while the thread ends
    void shutdown(std::unique_lock<Lock>& lock);

    struct Implementation;
    /// Gives tests access to the engine, so that they can inject packets.
    [[nodiscard]] Implementation& implementation() noexcept { return *implementation_; }

  private:
    std::unique_ptr<Implementation> implementation_;
};

} // namespace softverbs
