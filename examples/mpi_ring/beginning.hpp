// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>
#include <string>

#include "options.hpp"
#include "station.hpp"

namespace mpi_ring {

inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;

/// What a rank does by itself, from its command line to its station. Throws nothing of what goes
/// wrong there: the others have to be told.
struct Beginning {
    /// @param arguments  without the program's name
    Beginning(std::span<const char* const> arguments, int rank, int ranks) noexcept;

    Options options;
    /// None when it went wrong, or when there is but a text to print.
    std::optional<Station> station;
    /// To exit with, when there is none.
    int status = 0;
    /// To print then, in whole lines.
    std::string text;
};

} // namespace mpi_ring
