// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "control/device_faults.hpp"

namespace softverbs::control {

/// Starts the control thread. It listens on the socket <pid>.control in the directory in which the
/// softverbs processes of this host find each other. It executes the commands of `softverbs fault`,
/// `softverbs port` and `softverbs reset-device` from processes of the same user. Does nothing if
/// the thread exists. On failure, this process runs without the socket.
void start() noexcept;
/// Removes the file of the control socket. Called when the process exits.
void stop() noexcept;
/// Locks the state of the control thread during fork(2), so that the child process gets a
/// consistent copy of this state.
void before_fork() noexcept;
void after_fork_in_parent() noexcept;
/// Called in a child process after fork(2). Resets and unlocks the child's copy of the state of the
/// control thread. The thread and the socket file belong to the parent process.
void abandon() noexcept;

/// Plans the state changes of ports and the resets of devices that SOFTVERBS_FAULTS or
/// softverbs_set_faults() requests. Their delays (DeviceFault::delay_ms) begin with this call. Does
/// not wait for them. Returns 0, ENOMEM, or EAGAIN if the control thread cannot be created.
/// @param from_list  whether cancel_plan() cancels them
[[nodiscard]] int plan(std::span<const DeviceFault> faults, bool from_list = true) noexcept;
/// Cancels the state changes and resets that plan() has planned and that have not occurred. A port
/// that goes down and up repeatedly keeps its current state.
void cancel_plan() noexcept;
/// Returns a lock. While the caller holds the lock, the control thread begins no planned state
/// change of a port and no planned reset of a device. A change or reset that the control thread has
/// already taken from the plan may still be executed. While it holds the lock, the caller must not
/// call other functions of this file.
[[nodiscard]] std::unique_lock<std::mutex> block();
/// Makes the planned state changes and resets that are due, if a test has stopped the clock. While
/// the clock runs, the control thread makes them, and this function does nothing.
/// @return true if one was made, or if memory is exhausted, so that some may be left
bool step() noexcept;
/// Returns the time of the next state change or reset in nanoseconds, or 0 if none is planned.
[[nodiscard]] std::uint64_t next_change() noexcept;
/// Must be called when the clock runs again. Resumes the control thread.
void clock_runs() noexcept;
/// Cancels all state changes and resets that have not occurred.
void cancel_all() noexcept;

/// Executes a command that arrived on the control socket, and returns "ok" or an error text. The
/// commands are those of the program softverbs: "fault <list>" with a list as in SOFTVERBS_FAULTS,
/// "port <device> <port> down|up|flap:<n>ms*<times>" and "reset-device <device>".
[[nodiscard]] std::string execute(std::string_view command);

} // namespace softverbs::control
