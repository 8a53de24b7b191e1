// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace softverbs::control {

/// Starts a thread that receives commands of `softverbs fault`, `port` and `reset-device` on the
/// socket <pid>.control in the rendezvous directory. Only processes of the same user are served.
/// Later calls do nothing. If it fails, the process continues without the socket.
void start() noexcept;
/// Removes the socket file when the process exits.
void stop() noexcept;
/// For the child process after fork(2): the thread and the socket belong to the parent.
void abandon() noexcept;

/// Takes a port down and up again @p times times. Each state lasts @p period_ms milliseconds.
/// Returns at once, with 0 or an errno: ENODEV, EINVAL, ENOMEM, EAGAIN (the thread cannot be
/// created).
[[nodiscard]] int flap_port(unsigned device, std::uint8_t port, unsigned period_ms,
                            unsigned times) noexcept;

/// Executes one command: "fault <list>", "port <device> <port> down|up|flap:<n>ms*<times>" or
/// "reset-device <device>". Returns "ok" or an error text.
[[nodiscard]] std::string execute(std::string_view command);

} // namespace softverbs::control
