// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>

#include "cm/id.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::cm {

/// An event channel of librdmacm: the result of one open(2) of /dev/infiniband/rdma_cm. The file
/// descriptor that the program gets is one end of a socket pair. For each queued event, softverbs
/// writes one byte to the other end. Therefore poll(2), epoll(7), O_NONBLOCK and signals have the
/// same effects as with the device of the kernel.
struct ChannelFile {
    std::deque<Event> events;
    /// The end of the socket pair to which softverbs writes. epoll(7) reports EPOLLHUP for this end
    /// when the program has closed its last descriptor of the other end.
    fabric::UniqueFd signal_end;
    /// The file descriptors by which the program refers to this event channel. dup(2) adds further
    /// ones.
    std::vector<int> descriptors;
    /// ID of the thread that was the last to receive an event from this channel with the command
    /// GET_EVENT. 0: the program has received no event yet.
    pid_t event_thread = 0;
    dev_t device = 0;
    ino_t inode = 0;
    /// Number of queued events for which no byte was written to the socket, because the socket was
    /// full.
    std::size_t unsignalled = 0;

    /// Creates the socket pair. Returns 0 or an errno.
    /// @param flags  the flags that the program has passed to open(2)
    [[nodiscard]] int open(int flags);
    void push(const Event& event);
    /// Removes the first event of the queue and stores it in @p event. Returns false if the queue
    /// is empty.
    [[nodiscard]] bool pop(Event& event);
    /// Adds an event at the front of the queue. Used if an event that pop() has removed cannot be
    /// copied to the program.
    void push_front(const Event& event);
    /// Removes all queued events for which @p chosen returns true.
    void remove(const std::function<bool(const Event&)>& chosen);

    /// Returns whether the file descriptor refers to this event channel. Returns false if the
    /// program has closed it with a call that softverbs does not intercept.
    [[nodiscard]] bool is_referred_to_by(int descriptor) const noexcept;

  private:
    [[nodiscard]] bool signal() const noexcept;
};

} // namespace softverbs::cm
