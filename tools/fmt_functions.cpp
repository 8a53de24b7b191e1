// SPDX-License-Identifier: BSD-3-Clause
// The functions of libfmt.so that the command calls. A static command contains them, and does not
// load libfmt.so. In fmt's header-only mode they are inline functions. The compiler emits them
// here because this file takes their addresses, and because it is compiled with -fno-inline, the
// compiler also emits the functions that they call. All other files use the headers as for
// libfmt.so, which compiles twice as fast as the header-only mode.
#define FMT_HEADER_ONLY 1
#include <cstdio>
#include <string>

#include <fmt/format.h>

namespace {

[[gnu::used]] std::string (*const vformat)(fmt::string_view, fmt::format_args) = fmt::vformat;
[[gnu::used]] void (*const vprint)(std::FILE*, fmt::string_view, fmt::format_args) = fmt::vprint;

} // namespace
