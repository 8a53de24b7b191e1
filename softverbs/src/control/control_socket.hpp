// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace softverbs::control {

/// Listens for commands of `softverbs fault`, `port` and `reset-device` on the socket <pid>.control
/// in the rendezvous directory, in a thread of its own. Only processes of the same user are served.
/// Later calls do nothing; a process that cannot listen works without.
void start() noexcept;
/// Removes the socket, when the process exits.
void stop() noexcept;
/// In the child after fork(2): the thread and the socket are the parent's.
void abandon() noexcept;

/// Takes a port down and up again @p times times; each state lasts @p period_ms. Returns at once:
/// 0, or ENODEV, EINVAL, ENOMEM, EAGAIN (no thread).
[[nodiscard]] int flap_port(unsigned device, std::uint8_t port, unsigned period_ms,
                            unsigned times) noexcept;

/// Executes one command: "fault <list>", "port <device> <port> down|up|flap:<n>ms*<times>" or
/// "reset-device <device>". Returns "ok", or what is wrong.
[[nodiscard]] std::string execute(std::string_view command);

} // namespace softverbs::control
