// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rdmabuf::tools {

/// The style of human-readable output.
struct TextStyle {
    /// The maximum number of columns of a line. A longer word is not broken.
    std::size_t width = 80;
    /// True if the text may contain the escape sequences of colours.
    bool colour = false;
};

/// Returns the style for stdout. On a terminal, lines are as wide as the terminal, but 20 to 80
/// columns. Colours are used unless the environment variable NO_COLOR is set and not empty, or TERM
/// is not set or "dumb". For pipes and files, the width is 80 columns, without colours.
[[nodiscard]] TextStyle style_of_stdout();

enum class Colour : std::uint8_t { heading, good, bad, unknown };
/// Returns @p text in a colour; @p text itself if the style has no colours.
[[nodiscard]] std::string paint(const TextStyle& style, Colour colour, std::string_view text);

/// Replaces each control character of @p text by '?', except the escape sequences of colours. Names
/// in sysfs, or in a copy of it, can contain sequences that a terminal executes.
[[nodiscard]] std::string printable(std::string_view text);

/// Returns @p text as one word of a shell command, with quotes if it needs them.
[[nodiscard]] std::string shell_word(std::string_view text);

/// Breaks @p text at white space into lines of at most TextStyle::width columns, each with a
/// newline at its end. Escape sequences of colours do not count as columns. The text is made
/// printable().
/// @param first  the beginning of the first line
/// @param rest   the beginning of all other lines
[[nodiscard]] std::string wrap(const TextStyle& style, std::string_view text,
                               std::string_view first, std::string_view rest);

/// Breaks a shell command between words into lines, which end with a backslash except for the last
/// line. A shell executes the lines as it executes @p command, so that they can be copied. Quoted
/// text and comments are not broken. The text is made printable().
/// @param first  the beginning of the first line
/// @param rest   the beginning of all other lines, blanks only
[[nodiscard]] std::string wrap_command(const TextStyle& style, std::string_view command,
                                       std::string_view first, std::string_view rest);

/// Returns one entry of a list: the name in a column of its own, and the value in the lines beside
/// it. If TextStyle::width is below 60, the value follows the name in the same line.
[[nodiscard]] std::string field(const TextStyle& style, std::string_view name,
                                std::string_view value);

/// Writes @p text to stdout and flushes stdout.
/// @throws Error if stdout cannot be written, for example ENOSPC; EPIPE if the reader of a pipe has
///         closed the pipe and the program ignores SIGPIPE
void write_stdout(std::string_view text);

} // namespace rdmabuf::tools
