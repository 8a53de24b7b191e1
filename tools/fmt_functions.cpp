// SPDX-License-Identifier: BSD-3-Clause
// The functions of libfmt.so that the command calls. A static command contains this file instead of
// loading libfmt.so. In fmt's header-only mode, these functions are inline. The compiler emits them
// here, because this file takes their addresses. It also emits the functions that they call,
// because this file is compiled with -fno-inline. All other files use fmt without the header-only
// mode, which compiles twice as fast.
#define FMT_HEADER_ONLY 1
#include <cstdio>
#include <string>

#include <fmt/format.h>

namespace {

[[gnu::used]] std::string (*const vformat)(fmt::string_view, fmt::format_args) = fmt::vformat;
[[gnu::used]] void (*const vprint)(std::FILE*, fmt::string_view, fmt::format_args) = fmt::vprint;

} // namespace
