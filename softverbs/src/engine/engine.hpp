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
/// processes received packets. The caller must hold Process::lock, except as noted.
class Engine {
  public:
    Engine();
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Registers this process in the rendezvous directory (SOFTVERBS_DIR), so that other processes
    /// can find it and send packets to it. Starts the agent thread (a background thread), which
    /// executes requests while the program does not poll, and the control thread
    /// (control_socket.hpp). Plans the faults of ports and devices in SOFTVERBS_FAULTS. Does
    /// nothing if the agent thread was already started. Returns 0 or an errno. On failure, prints a
    /// line on stderr, except if memory is exhausted.
    [[nodiscard]] int start();
    /// Returns the slot of this process: its index among the softverbs processes of this host that
    /// have the same rendezvous directory, and the upper bits of its queue pair numbers. Must be
    /// called after start().
    [[nodiscard]] unsigned slot() const noexcept;

    /// Sends the posted send requests of a queue pair that is in state RTS.
    void posted(Qp& qp) noexcept;
    /// Processes received packets. Sends requests that waited because the ring to another process
    /// was full, and posted requests that SRD queue pairs delay. If a requester waits after an RNR
    /// NAK, or if packets or RDMA writes are delayed, also runs the expired timers. Called when the
    /// program polls an empty completion queue.
    void progress() noexcept;
    /// Does the work of the agent (background) thread while a test has stopped the clock: processes
    /// received packets and runs expired timers, without waiting. Returns whether there was such
    /// work; false if the clock runs.
    bool step() noexcept;
    /// Returns when the next timer expires, in nanoseconds of fabric::now_ns(). 0: no timer is set.
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;
    /// Must be called when the clock runs again. Resumes the agent thread.
    void clock_runs() noexcept;
    /// Must be called before the program waits for a completion event or an asynchronous event.
    /// Ends a short sleep of the agent (background) thread, because the program no longer polls.
    void program_sleeps();

    /// Delays the completion event of a completion queue whose event moderation was set with
    /// ibv_modify_cq().
    /// @param period_ns  delay in nanoseconds; 0: cancels the event that is delayed
    void moderated(Cq& cq, std::uint64_t period_ns);
    /// Processes the packets that have arrived at this process. Must be called before raising an
    /// event that must not overtake these packets.
    void handle_arrived();
    /// Must be called before the program moves a queue pair to RESET or ERR, or destroys it. Sends
    /// the posted requests that SRD queue pairs delay, and processes the packets that have arrived.
    /// Sends the delayed ACKs of this queue pair and of its peer, if the peer is in this process.
    /// With a NIC, all this would have happened already.
    void leaving(Qp& qp);
    /// Must be called after ibv_modify_qp() has changed a queue pair, and after a failure of the
    /// device has moved it to the error state.
    /// @param from  the previous state; the current state if it has not changed
    void state_changed(Qp& qp, ibv_qp_state from);
    /// Must be called after all requests in the send queue of a queue pair were flushed. Forgets
    /// these requests, stops the retransmission timer of the queue pair, sends its delayed ACK, and
    /// calls withdraw_writes().
    void flushed(Qp& qp);
    /// Must be called before a queue pair is freed. Sends its packets that SOFTVERBS_DISORDER (a
    /// test setting) delays, removes all references of the engine to it, and calls
    /// withdraw_responses().
    void destroyed(Qp& qp);
    /// Must be called after the ports of a device or their attributes have changed. Calls
    /// withdraw_writes(), and resumes sending on all queue pairs.
    void ports_changed();
    /// Must be called before a memory region becomes invalid, for example by deregistration. Calls
    /// withdraw_writes(), and executes the RDMA writes that SOFTVERBS_DISORDER (a test setting)
    /// delays. The requester of an RDMA read may still be copying data from this memory: after this
    /// call, such a copy fails, and the requester requests the data again.
    void withdraw_responses() noexcept;
    /// Revokes the permission of other processes to execute RDMA writes by copying data directly
    /// into memory of this process. Later RDMA writes arrive as packets, until this process gives
    /// the permission again. A direct write that is in progress continues.
    void withdraw_writes() noexcept;
    /// Waits until the direct writes that other processes had begun before the call of
    /// withdraw_writes() have ended. Verbs that change a memory region or a queue pair call this
    /// function before they return, so that no such write changes the memory afterwards. There is
    /// no time limit: if a process is stopped during its write, the wait ends when that process has
    /// finished the write or has ended. Releases Process::lock during the wait.
    void wait_for_writes() noexcept;
    /// Must be called before this process frees memory that other processes have mapped (shared
    /// memory). Asks these processes to unmap the memory.
    /// @param id  identifies the shared memory
    void unshare(std::uint32_t id);

    /// Returns how another process reads private memory of this process: "process_vm" (with
    /// process_vm_readv(2), or from /proc/<pid>/mem), "records" (this process sends the data in
    /// packets) or "none yet" (no process is connected, or the method is not known yet). The other
    /// process is the one to which a queue pair of this process has most recently begun to send.
    [[nodiscard]] const char* pull_method() const noexcept;
    /// Must be called in a child process after fork(2). Closes the connections in the child
    /// process, without an effect on the parent process.
    void abandon();
    /// Sends the delayed ACKs, the posted requests that SRD queue pairs delay, and the packets that
    /// SOFTVERBS_DISORDER delays. Waits for at most 1 second until the other processes have
    /// consumed the packets. Then ends the agent (background) thread and closes all connections to
    /// other processes. Called when the process exits.
    /// @param lock  holds Process::lock; released temporarily
    void shutdown(std::unique_lock<Lock>& lock);

    struct Implementation;
    /// Used by a test that injects packets.
    [[nodiscard]] Implementation& implementation() noexcept { return *implementation_; }

  private:
    std::unique_ptr<Implementation> implementation_;
};

} // namespace softverbs
