// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "machine.hpp"
#include "options.hpp"
#include "report.hpp"

namespace rdmabuf::tools::doctor {

/// Executes all checks of the machine, and then the proofs (test transfers).
/// @param on_section  called after each group of checks, so that the output appears before the
///                    proofs begin; may be empty
/// @throws UsageError if the options name a device or a GPU that the machine does not have
[[nodiscard]] Report inspect(Machine& machine, const Options& options,
                             const std::function<void(const Section&)>& on_section = {});

/// Executes `rdmabuf doctor` and prints the result on stdout. @return the exit status
/// @throws the exceptions of inspect(), Machine(), ReplayedMachine() and write_dump(); Error if
///         stdout cannot be written
[[nodiscard]] int run(const Options& options);

} // namespace rdmabuf::tools::doctor
