// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace rdmabuf::detail {

/// Waits until @p fd is readable. Signals do not shorten the wait.
/// @param timeout  zero polls; negative waits for ever
/// @return false when the time ran out
/// @throws Error what poll(2) says
bool wait_readable(int fd, std::chrono::milliseconds timeout);
/// The same for writing.
bool wait_writable(int fd, std::chrono::milliseconds timeout);

} // namespace rdmabuf::detail
