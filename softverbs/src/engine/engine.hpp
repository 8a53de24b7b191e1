// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace softverbs {

struct Cq;
struct Qp;
namespace fabric {
class Node;
}

/// Moves the data: executes what is posted, by packets to the other queue pair, in this process or
/// another. All with the lock held, unless said otherwise.
class Engine {
  public:
    Engine();
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Joins the other processes and starts the agent thread, which acts when the program does not
    /// poll; once is enough. 0, or an errno (with a line on stderr that says what to do).
    [[nodiscard]] int start();
    /// This process's slot: the upper part of its queue pair numbers. Only once started.
    [[nodiscard]] unsigned slot() const noexcept;

    /// Requests were posted to a queue pair that can send.
    void posted(Qp& qp);
    /// Receives and answers what has arrived, continues what waited for room, runs timers that are
    /// due. From ibv_poll_cq() and its like.
    void progress();
    /// The program is going to wait for an event and will not poll: the agent takes over at once.
    void program_sleeps();

    /// The event of a completion queue is due after @p period_ns, or not at all any more (0).
    void moderated(Cq& cq, std::uint64_t period_ns);
    /// After modify_qp() changed the state.
    void state_changed(Qp& qp, ibv_qp_state from);
    /// Its requests were flushed: nothing of it waits for time, room or an answer any more.
    void flushed(Qp& qp);
    /// Before a queue pair is freed: nothing of it is left here afterwards.
    void destroyed(Qp& qp);
    /// A port is up again, or down.
    void ports_changed();
    /// Memory that peers may read is not to be read any more: what they fetch as of now is not
    /// what they were told.
    void withdraw_responses() noexcept;
    /// Before a mapping is freed.
    void unshare(std::uint32_t id);

    /// "process_vm", "records", "none yet": of the connection used last.
    [[nodiscard]] const char* pull_method() const noexcept;
    /// For the child after fork(2): it has no part in what its parent is to the others. With the
    /// lock held.
    void abandon();
    /// At the end of the process: leaves the other processes, and ends the thread. Takes the lock
    /// itself.
    void shutdown();

    struct Implementation;
    /// For those who feed it what another process could send.
    [[nodiscard]] Implementation& implementation() noexcept { return *implementation_; }

  private:
    std::unique_ptr<Implementation> implementation_;
};

} // namespace softverbs
