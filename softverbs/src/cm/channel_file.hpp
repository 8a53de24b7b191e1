// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>

#include "cm/id.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::cm {

/// An open file of /dev/infiniband/rdma_cm, which librdmacm calls an event channel. The program's
/// descriptor is one end of a socket pair. The socket contains one byte for each pending event.
/// Therefore poll(2), epoll(7), O_NONBLOCK and an interrupted wait have the same effect as with the
/// kernel's device.
struct ChannelFile {
    std::deque<Event> events;
    /// The end of the socket pair that softverbs keeps. epoll(7) reports EPOLLHUP for it when the
    /// program's last descriptor is closed.
    fabric::UniqueFd signal_end;
    /// The program's descriptors of this file. There are several after dup(2).
    std::vector<int> descriptors;
    dev_t device = 0;
    ino_t inode = 0;
    /// Number of pending events that have no byte in the socket, because the buffer of the socket
    /// was full.
    std::size_t unsignalled = 0;

    /// Creates the socket pair. @p flags are the flags of open(2). Returns 0 or an errno.
    [[nodiscard]] int open(int flags);
    void push(const Event& event);
    /// Removes the first event from the queue and stores it in @p event. Returns false if the queue
    /// is empty.
    [[nodiscard]] bool pop(Event& event);
    /// Inserts @p event at the front of the queue, after pop() has removed it, and writes a new
    /// byte to the socket.
    void push_front(const Event& event);
    /// Removes all events for which @p chosen returns true.
    void remove(const std::function<bool(const Event&)>& chosen);

  private:
    [[nodiscard]] bool signal() const noexcept;
};

} // namespace softverbs::cm
