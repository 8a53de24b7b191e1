// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace rdmabuf::detail {

/// Waits until @p fd is readable. Signals do not shorten the wait.
/// @param timeout  zero polls; negative waits for ever
/// @return false when the time has run out
/// @throws Error what poll(2) says
bool wait_readable(int fd, std::chrono::milliseconds timeout);
/// Waits until @p fd is writable; otherwise as wait_readable().
bool wait_writable(int fd, std::chrono::milliseconds timeout);

/// Sets O_NONBLOCK on @p fd. When several threads wait for the same descriptor, one of them reads
/// it, and the others must not block in their read.
/// @throws Error what fcntl(2) says
void make_nonblocking(int fd);

} // namespace rdmabuf::detail
