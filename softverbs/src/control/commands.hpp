// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace softverbs::control {

/// Executes a command that arrived on the control socket, and returns "ok" or an error text. The
/// commands are those of the program softverbs: "fault <list>" with a list as in SOFTVERBS_FAULTS,
/// "port <device> <port> down|up|flap:<n>ms*<times>" and "reset-device <device>".
[[nodiscard]] std::string execute(std::string_view command);

} // namespace softverbs::control
