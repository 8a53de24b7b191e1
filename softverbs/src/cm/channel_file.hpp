// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>

#include "cm/id.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::cm {

/// An open file of /dev/infiniband/rdma_cm: what librdmacm calls an event channel. The program's
/// descriptor is one end of a socket pair. It has one byte to read for each pending event, so
/// poll(2), epoll(7), O_NONBLOCK and an interrupted wait behave as on the device.
struct ChannelFile {
    std::deque<Event> events;
    /// The other end of the socket pair. It hangs up when the program's last descriptor is closed.
    fabric::UniqueFd signal_end;
    /// The program's descriptors of the file, more than one after dup(2).
    std::vector<int> descriptors;
    dev_t device = 0;
    ino_t inode = 0;
    /// Pending events without a byte, as the socket's buffer was full.
    std::size_t unsignalled = 0;

    /// Makes the socket pair. @p flags: of open(2). 0, or an errno.
    [[nodiscard]] int open(int flags);
    void push(const Event& event);
    /// Removes the first event from the queue and stores it in @p event. False: the queue is empty.
    [[nodiscard]] bool pop(Event& event);
    /// Puts back the event that pop() took, with a byte of its own.
    void push_front(const Event& event);
    /// Removes the events that @p chosen returns true for.
    void remove(const std::function<bool(const Event&)>& chosen);

  private:
    [[nodiscard]] bool signal() const noexcept;
};

} // namespace softverbs::cm
