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

    /// Connects this process to the rendezvous directory, so that other processes can send packets
    /// to it. Starts the agent thread, which executes requests while the program does not poll.
    /// Does nothing if the agent thread was already started. Returns 0 or an errno. On failure,
    /// prints a line on stderr that suggests a remedy.
    [[nodiscard]] int start();
    /// Returns the number of this process in the rendezvous directory (its slot). The slot is the
    /// upper bits of the queue pair numbers of this process. Valid after start().
    [[nodiscard]] unsigned slot() const noexcept;

    /// Sends the posted requests of a queue pair in state RTS.
    void posted(Qp& qp) noexcept;
    /// Processes received packets, sends requests that waited because a connection was full, and
    /// runs expired timers. Called when the program polls a completion queue.
    void progress() noexcept;
    /// Must be called before the program waits for a completion event or an asynchronous event.
    /// Wakes the agent thread at once, because the program no longer polls.
    void program_sleeps();

    /// Delays the completion event of a completion queue that has event moderation
    /// (ibv_modify_cq()).
    /// @param period_ns  delay in nanoseconds; 0: cancels a delayed event
    void moderated(Cq& cq, std::uint64_t period_ns);
    /// Processes all packets that have arrived. Called before an event is raised that must not
    /// overtake these packets.
    void handle_arrived();
    /// Must be called before the program moves a queue pair to RESET or ERR, or destroys it. A NIC
    /// executes and acknowledges requests when they arrive. Therefore this function handles the
    /// packets that have arrived, and acknowledges all executed requests.
    void leaving(Qp& qp);
    /// Must be called after modify_qp() has changed the state of a queue pair.
    /// @param from  the previous state
    void state_changed(Qp& qp, ibv_qp_state from);
    /// Must be called after the send queue of a queue pair was flushed. Stops the timer of the
    /// queue pair.
    void flushed(Qp& qp);
    /// Must be called before a queue pair is freed. Removes all references to it.
    void destroyed(Qp& qp);
    /// Must be called after the number of ports or the state of a port has changed. Resumes
    /// sending.
    void ports_changed();
    /// Must be called before memory becomes invalid, for example by deregistration. The requester
    /// of an RDMA read may still be copying data from this memory. After this call, its copy fails,
    /// and the requester requests the data again.
    void withdraw_responses() noexcept;
    /// Another process can execute an RDMA write by copying the data directly into memory of this
    /// process. Withdraws the permission for this from all processes. Later RDMA writes arrive as
    /// packets, until the permission is granted again. A direct write that is in progress
    /// continues.
    void withdraw_writes() noexcept;
    /// Waits for the end of the direct writes that were in progress when withdraw_writes() was
    /// called. Verbs call this function before they return, so that no such write changes the
    /// memory afterwards. There is no time limit: a process that is stopped during its write
    /// finishes the write when it continues. The end of the writing process ends the wait. Releases
    /// Process::lock during the wait.
    void wait_for_writes() noexcept;
    /// Must be called before a memory mapping is freed that other processes share. Requests that
    /// these processes unmap it.
    /// @param id  identifies the mapping
    void unshare(std::uint32_t id);

    /// Returns the method by which the process that has connected most recently reads private
    /// memory of this process: "process_vm" (with process_vm_readv(2)), "records" (this process
    /// sends the data in packets) or "none yet" (no process is connected).
    [[nodiscard]] const char* pull_method() const noexcept;
    /// Closes all connections in a child process after fork(2), without an effect on the parent
    /// process.
    void abandon();
    /// Closes all connections and ends the agent thread. Called when the process exits.
    /// @param lock  holds Process::lock; released temporarily
    void shutdown(std::unique_lock<Lock>& lock);

    struct Implementation;
    /// Used only by tests that inject packets.
    [[nodiscard]] Implementation& implementation() noexcept { return *implementation_; }

  private:
    std::unique_ptr<Implementation> implementation_;
};

} // namespace softverbs
