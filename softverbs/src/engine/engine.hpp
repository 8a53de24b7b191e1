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

/// Executes work requests: sends packets to queue pairs of this process and of other processes, and
/// processes received packets. Process::lock must be held during all calls, except as noted.
class Engine {
  public:
    Engine();
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Connects this process to the rendezvous directory, so that other processes can send to it.
    /// Starts the agent thread, which executes requests while the program does not poll. Does
    /// nothing if this was done. Returns 0 or an errno. On failure, prints a line on stderr that
    /// suggests a remedy.
    [[nodiscard]] int start();
    /// Returns the slot of this process: the upper bits of its queue pair numbers. Valid after
    /// start().
    [[nodiscard]] unsigned slot() const noexcept;

    /// Sends the posted requests of a queue pair in state RTS.
    void posted(Qp& qp) noexcept;
    /// Processes received packets, continues requests that waited for room in a connection, and
    /// runs expired timers. Called when the program polls a completion queue.
    void progress() noexcept;
    /// Must be called before the program waits for an event. Starts the agent thread at once,
    /// because the program no longer polls.
    void program_sleeps();

    /// Delays the event of a completion queue with moderation.
    /// @param period_ns  delay in nanoseconds; 0: cancels a delayed event
    void moderated(Cq& cq, std::uint64_t period_ns);
    /// Processes all packets that have arrived. Called before an event is raised that must not
    /// overtake these packets.
    void handle_arrived();
    /// Must be called before the program moves a queue pair to RESET or ERR, or destroys it. A NIC
    /// executes and acknowledges requests when they arrive. Therefore this function handles the
    /// packets that have arrived, and acknowledges all executed requests.
    void leaving(Qp& qp);
    /// Must be called after modify_qp() has changed the state from @p from.
    void state_changed(Qp& qp, ibv_qp_state from);
    /// Must be called after the send queue was flushed. Stops the timer of the queue pair.
    void flushed(Qp& qp);
    /// Must be called before a queue pair is freed. Removes all references to it.
    void destroyed(Qp& qp);
    /// Must be called after the state or the number of ports has changed. Resumes sending.
    void ports_changed();
    /// Must be called before memory becomes invalid, for example by deregistration. A peer may
    /// still copy data of a read from this memory. After this call, such a copy fails, and the peer
    /// requests the data again.
    void withdraw_responses() noexcept;
    /// Withdraws the permission of other processes to write directly to memory of this process.
    /// Later RDMA writes arrive as packets, and then grant the permission again. A direct write
    /// that is in progress continues.
    void withdraw_writes() noexcept;
    /// Waits for the end of the direct writes that were in progress when their permission was
    /// withdrawn. Verbs call this before they return, so that no such write changes the memory
    /// afterwards. There is no time limit, because a process that is stopped during its write
    /// finishes the write when it continues. The wait ends when the writing process ends. Releases
    /// Process::lock during the wait.
    void wait_for_writes() noexcept;
    /// Must be called before a mapping is freed. Requests that other processes unmap its memory.
    void unshare(std::uint32_t id);

    /// Returns how the process that connected last reads private memory of this process:
    /// "process_vm" (with process_vm_readv(2)), "records" (the data is sent in packets) or "none
    /// yet" (no process is connected).
    [[nodiscard]] const char* pull_method() const noexcept;
    /// Closes all connections in a child process after fork(2), without an effect on the parent
    /// process.
    void abandon();
    /// Closes all connections and ends the agent thread. Called when the process exits.
    /// @param lock  holds Process::lock; released temporarily
    void shutdown(std::unique_lock<Lock>& lock);

    struct Implementation;
    /// For tests that inject packets.
    [[nodiscard]] Implementation& implementation() noexcept { return *implementation_; }

  private:
    std::unique_ptr<Implementation> implementation_;
};

} // namespace softverbs
