// SPDX-License-Identifier: BSD-3-Clause
#include "plot.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "../format.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::perf {

namespace {

constexpr const char* program = "gnuplot";
/// The maximum number of points of the curve.
constexpr std::size_t max_points = 2000;

/// Returns the terminal of gnuplot for the ending of the file name; nullptr for another ending.
const char* terminal_for(const std::string& file) {
    const std::string ending = std::filesystem::path(file).extension().string();
    if (ending == ".svg") {
        return "svg size 800,500 background 'white'";
    }
    if (ending == ".png") {
        return "pngcairo size 800,500";
    }
    return ending == ".pdf" ? "pdfcairo size 8in,5in" : nullptr;
}

bool is_installed() {
    const char* const path = std::getenv("PATH");
    std::istringstream directories(path != nullptr ? path : "");
    for (std::string directory; std::getline(directories, directory, ':');) {
        if (::access((std::filesystem::path(directory) / program).c_str(), X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/// Returns @p text as a string of gnuplot between single quotes.
std::string gnuplot_string(std::string_view text) {
    std::string out = "'";
    for (const char each : text) {
        out += each == '\'' ? "''" : std::string(1, each);
    }
    return out + "'";
}

/// Returns a file in memory with the contents @p text, at its first byte.
UniqueFd file_with(std::string_view text) {
    UniqueFd file(::memfd_create("rdmabuf-plot", MFD_CLOEXEC));
    if (!file) {
        throw Error(errno, "memfd_create");
    }
    while (!text.empty()) {
        const ssize_t count = ::write(file.get(), text.data(), text.size());
        if (count < 0 && errno != EINTR) {
            throw Error(errno, "write");
        }
        text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
    if (::lseek(file.get(), 0, SEEK_SET) != 0) {
        throw Error(errno, "lseek");
    }
    return file;
}

} // namespace

void check_plot(const std::string& file) {
    if (terminal_for(file) == nullptr) {
        throw UsageError(fmt::format("--plot {}: the name must end with .svg, .png or .pdf", file));
    }
    if (!is_installed()) {
        throw Error(ENOENT, program,
                    "--plot requires the program gnuplot, and no directory of PATH has it; install "
                    "gnuplot (Debian: gnuplot-nox)");
    }
}

std::string plot_script(const Options& options, const Setting& setting, const Result& result,
                        const std::vector<double>& sorted) {
    const double seconds = result.figures.elapsed / 1e6;
    const double rate = seconds > 0 ? options.iterations / seconds : 0;
    std::string script = fmt::format(
        "set terminal {}\nset output {}\n"
        "set title {} noenhanced\n"
        "set xlabel 'percentile of the transfers'\nset ylabel 'latency in microseconds'\n"
        "set xrange [0:100]\nset logscale y\nset grid\nset key top left\n"
        "$latency << END\n",
        terminal_for(options.plot), gnuplot_string(options.plot),
        gnuplot_string(fmt::format(
            "{} of {}, {} in flight, {} memory on {}: {}, {}", to_string(options.verb),
            format_size(options.size), options.depth, options.memory.type, setting.device,
            format_bandwidth(rate * static_cast<double>(options.size)), format_rate(rate))));
    const std::size_t points = std::min(sorted.size(), max_points);
    for (std::size_t point = 0; point < points; ++point) {
        // The last point is the maximum.
        const std::size_t rank = ((point + 1) * sorted.size() + points - 1) / points;
        script +=
            fmt::format("{:.4f} {:.3f}\n",
                        100.0 * static_cast<double>(rank) / static_cast<double>(sorted.size()),
                        sorted[rank - 1]);
    }
    script += "END\nplot $latency using 1:2 with steps linewidth 2 title 'latency'";
    for (const auto& [name, value] :
         {std::pair("median", result.figures.p50), std::pair("99 %", result.figures.p99)}) {
        script += fmt::format(", {:.3f} dashtype 2 title {}", value,
                              gnuplot_string(fmt::format("{}: {}", name, format_usec(value))));
    }
    return script + "\n";
}

void run_gnuplot(const std::string& script) {
    // gnuplot reads the commands from a file, because a pipe could be closed by a gnuplot that
    // fails.
    const UniqueFd commands = file_with(script);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, commands.get(), STDIN_FILENO);
    std::array<char*, 2> arguments{const_cast<char*>(program), nullptr};
    pid_t child = 0;
    const int error = ::posix_spawnp(&child, program, &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        throw Error(error, "posix_spawnp", "gnuplot cannot be executed");
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            throw Error(errno, "waitpid");
        }
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw Error(EIO, program, "gnuplot has not written the plot; its message is above");
    }
}

} // namespace rdmabuf::tools::perf
