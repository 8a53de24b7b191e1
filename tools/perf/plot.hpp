// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "options.hpp"
#include "report.hpp"

namespace rdmabuf::tools::perf {

/// Checks that gnuplot can draw the plot of --plot.
/// @throws UsageError if the name of the file has another ending than .svg, .png or .pdf; Error
///         ENOENT if no directory of PATH has the program gnuplot
void check_plot(const std::string& file);

/// Returns the commands for gnuplot that draw the latency for each percentile, with the figures of
/// the run in the title.
/// @param sorted  the latencies in microseconds, in increasing order; at least one
[[nodiscard]] std::string plot_script(const Options& options, const Setting& setting,
                                      const Result& result, const std::vector<double>& sorted);

/// Executes gnuplot with the commands of @p script.
/// @throws Error EIO if gnuplot fails; other errno values if it cannot be executed
void run_gnuplot(const std::string& script);

} // namespace rdmabuf::tools::perf
