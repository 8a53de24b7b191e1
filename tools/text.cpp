// SPDX-License-Identifier: BSD-3-Clause
#include "text.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <rdmabuf/error.hpp>

#include <fmt/format.h>

namespace rdmabuf::tools {

namespace {

constexpr std::size_t max_width = 80;
constexpr std::size_t min_width = 20;
constexpr std::size_t narrow_width = 60;
constexpr std::size_t name_width = 18;

/// Returns the number of columns of @p text on a terminal.
std::size_t columns(std::string_view text) {
    std::size_t count = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\x1b') {
            at = std::min(text.find('m', at), text.size());
        } else {
            ++count;
        }
    }
    return count;
}

/// Splits a shell command at blanks that are neither quoted nor escaped. A comment, which extends
/// to the end of the command, is one word.
std::vector<std::string_view> shell_words(std::string_view command) {
    std::vector<std::string_view> words;
    std::size_t at = 0;
    while ((at = command.find_first_not_of(' ', at)) != std::string_view::npos) {
        const std::size_t begin = at;
        char quote = '\0';
        for (; at < command.size() && (quote != '\0' || command[at] != ' '); ++at) {
            const char each = command[at];
            if (each == '\\' && quote != '\'') {
                ++at; // The next character is not special.
            } else if (quote != '\0') {
                quote = each == quote ? '\0' : quote;
            } else if (each == '"' || each == '\'') {
                quote = each;
            }
        }
        if (command[begin] == '#') {
            at = command.size();
        }
        at = std::min(at, command.size());
        words.push_back(command.substr(begin, at - begin));
    }
    return words;
}

} // namespace

TextStyle style_of_stdout() {
    TextStyle style;
    if (::isatty(STDOUT_FILENO) == 0) {
        return style;
    }
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
        style.width = std::clamp<std::size_t>(size.ws_col, min_width, max_width);
    }
    const char* const no_colour = std::getenv("NO_COLOR");
    const char* const terminal = std::getenv("TERM");
    style.colour = (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr &&
                   std::string_view(terminal) != "dumb";
    return style;
}

std::string paint(const TextStyle& style, Colour colour, std::string_view text) {
    if (!style.colour) {
        return std::string(text);
    }
    // The codes of the escape sequences (SGR), in the order of Colour: bold, green, red and yellow.
    constexpr std::array codes{1, 32, 31, 33};
    return fmt::format("\x1b[{}m{}\x1b[0m", codes.at(static_cast<std::size_t>(colour)), text);
}

std::string printable(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text.substr(at, 2) == "\x1b[") {
            const std::size_t end = text.find_first_not_of("0123456789", at + 2);
            if (end != std::string_view::npos && text[end] == 'm') {
                out.append(text.substr(at, end + 1 - at));
                at = end;
                continue;
            }
        }
        out += static_cast<unsigned char>(text[at]) < ' ' || text[at] == '\x7f' ? '?' : text[at];
    }
    return out;
}

std::string shell_word(std::string_view text) {
    constexpr const char* plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        "%+,-./:=@_";
    if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos) {
        return std::string(text);
    }
    std::string out = "'";
    for (const char each : text) {
        out += each == '\'' ? "'\\''" : std::string(1, each);
    }
    return out + "'";
}

std::string wrap(const TextStyle& style, std::string_view text, std::string_view first,
                 std::string_view rest) {
    std::string out(first);
    std::size_t used = columns(first);
    bool empty = true;
    constexpr const char* space = " \t\r\n";
    for (std::size_t at = 0; (at = text.find_first_not_of(space, at)) != std::string_view::npos;) {
        const std::size_t end = std::min(text.find_first_of(space, at), text.size());
        const std::string_view word = text.substr(at, end - at);
        const std::size_t needed = columns(word) + (empty ? 0 : 1);
        if (!empty && used + needed > style.width) {
            out.append("\n").append(rest);
            used = columns(rest);
            empty = true;
        }
        out.append(empty ? "" : " ").append(printable(word));
        used += columns(word) + (empty ? 0 : 1);
        empty = false;
        at = end;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
}

std::string wrap_command(const TextStyle& style, std::string_view command, std::string_view first,
                         std::string_view rest) {
    constexpr std::string_view continued = " \\";
    const std::vector<std::string_view> words = shell_words(command);
    std::string out(first);
    std::size_t used = first.size();
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string word = printable(words[i]);
        const bool last = i + 1 == words.size();
        const std::size_t needed = word.size() + (last ? 0 : continued.size());
        if (i > 0 && used + 1 + needed > style.width) {
            out.append(continued).append("\n").append(rest).append(word);
            used = rest.size() + word.size();
        } else {
            out.append(i > 0 ? " " : "").append(word);
            used += word.size() + (i > 0 ? 1 : 0);
        }
    }
    return out + "\n";
}

std::string field(const TextStyle& style, std::string_view name, std::string_view value) {
    if (style.width < narrow_width) {
        return wrap(style, fmt::format("{}: {}", name, value), "  ", "    ");
    }
    const std::string indent(name_width + 2, ' ');
    return wrap(style, value, fmt::format("  {:<{}}", name, name_width), indent);
}

void write_stdout(std::string_view text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
        std::fflush(stdout) != 0) {
        throw Error(errno != 0 ? errno : EIO, "write", "stdout cannot be written");
    }
}

} // namespace rdmabuf::tools
